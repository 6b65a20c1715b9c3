"""Who walks the DAG: in this process, in child processes, on Beam."""
