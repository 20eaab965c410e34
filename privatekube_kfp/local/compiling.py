"""From a pipeline in Python to its compiled YAML.

The file is run, as kfp needs it to be: what it prints goes to standard error, and what goes wrong
in it ends in one sentence that names its file and line.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import tempfile
import traceback
import warnings
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from privatekube_kfp.local.errors import PipelineError
from privatekube_kfp.local.pipeline import CompiledPipeline, compiled_from_text, read_compiled

_COMPILED = (".yaml", ".yml", ".json")


def load_pipeline(path: Path, function: str | None = None) -> CompiledPipeline:
    """The pipeline in a file: Python that is compiled, or YAML that was compiled before."""
    need_kfp()
    if path.suffix in _COMPILED:
        if function is not None:
            raise PipelineError(
                "Usage", f"{path} is compiled already: it has no functions", malformed=True
            )
        return read_compiled(path)
    if path.suffix != ".py":
        raise PipelineError(
            "NotAPipeline",
            f"{path} is neither Python (.py) nor a compiled pipeline (.yaml)",
            malformed=True,
        )
    return compile_file(path, function)


def compile_file(path: Path, function: str | None = None) -> CompiledPipeline:
    """Compile the one pipeline of a Python file, or the one that `function` names."""
    path.stat()  # a file that is not there is told as such
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        pipelines = _pipelines(_run(path))
        pipeline = _chosen(path, pipelines, function)
        return _compile(path, pipeline)


def need_kfp() -> None:
    if find_spec("kfp") is None:
        raise PipelineError(
            "KubeflowMissing",
            "pipelines need kfp, the SDK of Kubeflow Pipelines; install it with"
            " pip install 'privatekube-kfp[pipelines]'",
        )


def _run(path: Path) -> ModuleType:
    """Run a file as a module of its own, with its folder to import from, as `python FILE` would."""
    location = path.resolve()
    spec = importlib.util.spec_from_file_location(location.stem, location)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before, known = list(sys.path), sys.modules.get(location.stem)
    sys.path.insert(0, str(location.parent))
    sys.modules[location.stem] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        where = f"{error.filename or path}:{error.lineno or 1}"
        raise PipelineError("InvalidPipeline", f"{where}: {error.msg}") from None
    except SystemExit as error:
        message = f"{_where(path, error)}: it ends the program while it is loaded"
        raise PipelineError("InvalidPipeline", message) from None
    except Exception as error:
        raise _broken(path, error) from None
    finally:
        sys.path[:] = before
        if known is None:
            sys.modules.pop(location.stem, None)
        else:
            sys.modules[location.stem] = known
    return module


def _pipelines(module: ModuleType) -> dict[str, Any]:
    from kfp.dsl import graph_component

    found = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, graph_component.GraphComponent)
    }
    own = {
        name: value
        for name, value in found.items()
        if getattr(value.pipeline_func, "__module__", None) == module.__name__
    }
    return own or found


def _chosen(path: Path, pipelines: dict[str, Any], function: str | None) -> Any:
    names = ", ".join(pipelines)
    if function is not None:
        if function not in pipelines:
            there = f"it has {names}" if names else "it has none"
            raise PipelineError(
                "Usage", f"{path} has no pipeline function {function!r}: {there}", malformed=True
            )
        return pipelines[function]
    if not pipelines:
        raise PipelineError(
            "NotAPipeline", f"{path} has no pipeline: no function with @dsl.pipeline"
        )
    if len(pipelines) > 1:
        raise PipelineError(
            "Usage",
            f"{path} has several pipelines: {names}; name one with --function",
            malformed=True,
        )
    return next(iter(pipelines.values()))


def _compile(path: Path, pipeline: Any) -> CompiledPipeline:
    from kfp import compiler

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "pipeline.yaml"
        try:
            compiler.Compiler().compile(pipeline, str(out))
        except Exception as error:
            raise _broken(path, error) from None
        return compiled_from_text(out.read_text(), str(path))


def _broken(path: Path, error: Exception) -> PipelineError:
    said = " ".join(str(error).split())
    # kfp's own errors are sentences; of Python's, the kind is half of what they say.
    if not type(error).__module__.startswith("kfp"):
        said = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return PipelineError("InvalidPipeline", f"{_where(path, error)}: {said}")


def _where(path: Path, error: BaseException) -> str:
    """The line of the file at which something went wrong."""
    location = str(path.resolve())
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == location
    ]
    return f"{path}:{lines[-1]}" if lines else str(path)
