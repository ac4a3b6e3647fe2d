"""Where a job is, a folder or a server, and what lies beside its store.

* :mod:`.place`: the common interface of both
* :mod:`.folder_place`: a job folder, and the paths in it
* :mod:`.server_place`: a server
* :mod:`.seed_files`: lists of seeds that wait beside a job
* :mod:`.stored_control`: the control settings, kept beside the store
* :mod:`.calibration_file`: what grades for a topic mean, by labels
* :mod:`.cutting`: how many shards a job was cut into
* :mod:`.shard_places`: where the shards of a job are
* :mod:`.file_formats`: formats of files by the ends of their names
* :mod:`.remote_files`: files that are sent to a URL
"""
