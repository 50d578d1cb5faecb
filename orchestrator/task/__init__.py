"""What the user wrote: task files and the configuration, read strictly and explained precisely.

    text -> yaml_reader (values with lines) -> dialect + schema (shape) -> layers (flags, environment, configuration)
         -> build (the Task) -> rules (impossible combinations)

Nothing here does I/O but `parse.load_task_file` and `config.load_config`, which read one file each.
"""
