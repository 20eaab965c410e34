import pytest
import yaml
from kfp import compiler


@pytest.fixture
def compiled(tmp_path):
    """A pipeline as its YAML says it: the pipeline, and what is for Kubernetes."""

    def compile_it(pipeline):
        path = tmp_path / "pipeline.yaml"
        compiler.Compiler().compile(pipeline, str(path))
        documents = list(yaml.safe_load_all(path.read_text()))
        return documents[0], documents[1] if len(documents) > 1 else {}

    return compile_it
