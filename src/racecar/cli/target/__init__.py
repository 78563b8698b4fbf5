"""TARGET: from a name, a shape and a file of weights on the command line to a model and its inputs."""
