"""kfp has what the hooks replace: a version that has not is told from one that misbehaves."""

from __future__ import annotations

import inspect

from kfp.local import executor_input_utils, io, subprocess_task_handler
from kfp.local.orchestrator import task_executor, task_spec_utils


def test_kfp_still_calls_what_we_replace() -> None:
    """By these names, with these arguments."""
    replaced = {
        task_executor.execute_single_task: {
            "task_name", "task_spec", "pipeline_resource_name", "components", "executors",
            "io_store", "pipeline_root", "runner", "unique_pipeline_id", "fail_stack",
        },
        executor_input_utils.construct_local_task_root: {
            "pipeline_root", "pipeline_resource_name", "task_resource_name",
        },
        executor_input_utils.get_local_pipeline_resource_name: {"pipeline_name"},
        executor_input_utils.construct_executor_input: {
            "component_spec", "arguments", "task_root", "block_input_artifact",
        },
        task_spec_utils.get_nested_pipeline_resource_name: {"task_name", "pipeline_resource_name"},
        subprocess_task_handler.run_local_subprocess: {"full_command", "env_vars"},
        subprocess_task_handler.replace_python_executable: {"full_command", "new_executable"},
        io.IOStore.get_parent_input: {"self", "key"},
    }  # fmt: skip
    for function, parameters in replaced.items():
        assert set(inspect.signature(function).parameters) == parameters, function
