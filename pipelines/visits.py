"""How long a visit lasts on average, without telling on any visitor."""

from kfp import dsl
from kfp.dsl import Artifact, Dataset, Input, Output

from privatekube_kfp.components import privacy_budget


@dsl.component(base_image="privatekube/python:0.1.0", install_kfp_package=False)
def average(data: Input[Dataset], epsilon: str, result: Output[Artifact]):
    # privatekube.io/role: compute
    import opendp.prelude as dp
    import pyarrow.parquet

    dp.enable_features("contrib")

    def noisy(value, most):
        """A sum to which each visit adds at most so much, for half of epsilon."""
        space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
        return dp.m.make_laplace(*space, scale=2 * most / float(epsilon))(value)

    minutes = pyarrow.parquet.read_table(data.path)["minutes"].to_pylist()
    total = noisy(sum(min(max(m, 0), 60) for m in minutes), most=60)
    mean = total / max(1, noisy(len(minutes), most=1))
    with open(result.path, "w") as out:
        out.write(f"{mean:.1f} minutes\n")


@dsl.pipeline(name="visits")
def visits(epsilon: str = "0.5", uri: str = ""):
    with privacy_budget(stream="visits", epsilon=epsilon, last_blocks=7, results=uri) as budget:
        data = budget.download()
        mean = average(data=data.outputs["data"], epsilon=epsilon)
        budget.consume(after=[mean])
        budget.upload(mean, name="average")
