"""The stage `rl` on several machines of a cluster: a TrainJob of Kubeflow Trainer does the work.

A pod that is asked for more machines than one puts the inputs where all can read them, starts a
TrainJob whose machines are like itself, and follows it. Its result goes into the store, from which
the pod takes it: key, outputs and record are those of the stage, however many machines did it. A
pod that comes after one that died finds the TrainJob by its name, and follows that.
"""
