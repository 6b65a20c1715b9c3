"""Kubeflow: a pipeline compiled to a KFP pipeline spec, linted, simulated on this machine, and run on a cluster."""
