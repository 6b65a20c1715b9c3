"""Kubeflow: a pipeline as a KFP pipeline spec, seen to hold, carried out here, handed to a cluster."""
