# Every Python of an own program imports this first, by PYTHONPATH: it gives torchrun and JAX the hosts of the cluster
# where the person has said nothing. Variables cannot: `torchrun --standalone` and `--nnodes 1` take PET_NNODES and
# PET_MASTER_PORT for what they leave out, and wait for hosts that do not come. So those variables are only for a Python
# that does not read this file, or starts torch's launcher in its own process (`tune run`). It needs no package, and any
# Python can parse it.
import os
import sys

# Options of torchrun by their effect (torch 2.13, torch/distributed/run.py, read November 2026).
_OPTIONS = ("nnodes", "node_rank", "master_addr", "master_port", "max_restarts", "nproc_per_node")
_OTHER_RENDEZVOUS = ("standalone", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf")
_WITHOUT_VALUE = ("standalone", "module", "no_python", "run_path", "virtual_local_rank", "use_env", "help")


def _drop_defaults():
    # The variables that orch gives, where they have its values still (templates/run/base.sh.j2).
    head, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    hosts, rank = os.environ["ORCH_NUM_HOSTS"], os.environ["ORCH_RANK"]
    ours = {"NNODES": hosts, "NODE_RANK": rank, "MASTER_ADDR": head, "MASTER_PORT": port}
    for name, value in ours.items():
        if os.environ.get("PET_" + name) == value:
            os.environ.pop("PET_" + name, None)


def _is_program(name, *modules):
    # Whether this process is a program, started by its name, by its file, or as a module.
    program, words = sys.argv[0], getattr(sys, "orig_argv", None)
    if program != "-m":
        files = [module.replace(".", "/") + ".py" for module in modules]
        return os.path.basename(program) == name or program.endswith(tuple(files))
    module = words[len(words) - len(sys.argv)] if words else ""  # Python before 3.10 does not say it
    return module.split("-m")[-1] in modules


def _read_options(words):
    # The options before the training script, by their long names with "_"; argparse takes their beginnings, too.
    found = {name[4:].lower(): value for name, value in os.environ.items() if name.startswith("PET_")}
    words = iter(words)
    for word in words:
        if not word.startswith("-") or word == "--":
            break
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if not word.startswith("--"):
            name, equals = "", word[1:2] in ("m", "h") or len(word) > 2  # `-r 3`, `-r3`, and flags
        if not equals and not (name and any(flag.startswith(name) for flag in _WITHOUT_VALUE)):
            value = next(words, "")
        for option in _OPTIONS + _OTHER_RENDEZVOUS:
            if name and option.startswith(name):
                found[option] = value
    return found


def _list_missing(said):
    # The arguments with which torchrun meets all hosts; none where the person asks for something else.
    hosts, rank = os.environ["ORCH_NUM_HOSTS"], os.environ["ORCH_RANK"]
    head, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    places = {"node_rank", "master_addr"} & set(said)
    if any(name in said for name in _OTHER_RENDEZVOUS) or not (head and port):
        return []
    if said.get("nnodes") not in (hosts, hosts + ":" + hosts) and ("nnodes" in said or places):
        return []
    given = {"nnodes": hosts, "node_rank": rank, "master_addr": head, "master_port": port}
    if said.get("max_restarts", "0") != "0" and not places:
        # Hosts that are given by rank do not hear of another one's restart, and wait for it. Restarted processes that
        # share the launcher's store read the addresses of those that ended. Both seen with torch 2.13, November 2026.
        os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
        end = ("[" + head + "]" if ":" in head else head) + ":" + said.pop("master_port", port)
        given = {"nnodes": hosts, "rdzv_backend": "c10d", "rdzv_endpoint": end, "rdzv_id": "orch"}
        given["rdzv_conf"] = "is_host=" + ("true" if rank == "0" else "false")
    return ["--" + name + "=" + value for name, value in given.items() if name not in said]


class _JaxClusters:
    # An import hook: jax.distributed.initialize() asks the classes that this package knows, until one fits.
    # No class reads JAX_NUM_PROCESSES or JAX_PROCESS_ID (jax 0.10.2, jax/_src/clusters/cluster.py, November 2026).
    def find_spec(self, name, path=None, target=None):
        if name != "jax._src.clusters":
            return None
        from importlib.machinery import PathFinder

        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_add(module):
                load(module)
                if hasattr(module, "ClusterEnv"):
                    _add_cluster(module.ClusterEnv)

            spec.loader.exec_module = load_and_add
        return spec


def _add_cluster(base):
    # The last of the classes: the metadata of TPUs, Slurm and Open MPI come first.
    other = "SLURM_JOB_ID" in os.environ or "OMPI_MCA_orte_hnp_uri" in os.environ  # they name their own coordinator
    if other and os.environ.get("JAX_COORDINATOR_ADDRESS") == os.environ["ORCH_COORDINATOR"]:
        del os.environ["JAX_COORDINATOR_ADDRESS"]

    class OrchCluster(base):
        name = "orch"

        @classmethod
        def is_env_present(cls):
            return True

        @classmethod
        def get_coordinator_address(cls, *args, **keywords):
            return os.environ["ORCH_COORDINATOR"]

        @classmethod
        def get_process_count(cls):
            return int(os.environ.get("JAX_NUM_PROCESSES") or os.environ["ORCH_NUM_HOSTS"])

        @classmethod
        def get_process_id(cls):
            return int(os.environ.get("JAX_PROCESS_ID") or os.environ["ORCH_RANK"])

    return OrchCluster


def _import_next():
    # The file of this name that the interpreter would have found, such as Debian's.
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != folder]
    this = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "") != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", this)


def _refuse_no_processes(said):
    # torchrun itself ends with an AssertionError that has no text.
    if said.get("nproc_per_node") == "0":
        why = "SKYPILOT_NUM_GPUS_PER_NODE counts GPUs alone, and is 0 here" if _no_gpus() else "it starts 1 or more"
        os.write(2, ("error: torchrun is to start 0 processes (--nproc-per-node): " + why + "\n").encode())
        os._exit(2)


def _no_gpus():
    return os.environ.get("SKYPILOT_NUM_GPUS_PER_NODE") == "0"


def _give_hosts():
    if not getattr(sys, "argv", None):
        return
    if _is_program("accelerate", "accelerate.commands.launch", "accelerate.commands.accelerate_cli"):
        _drop_defaults()  # it says its machines itself, and reads the variables for what it leaves out
    if _is_program("torchrun", "torch.distributed.run", "torch.distributed.launch"):
        _drop_defaults()
        options = _read_options(sys.argv[1:])
        _refuse_no_processes(options)
        if os.environ["ORCH_NUM_HOSTS"] != "1":
            sys.argv[1:1] = _list_missing(options)
    sys.meta_path.insert(0, _JaxClusters())


if {"ORCH_NUM_HOSTS", "ORCH_RANK", "ORCH_COORDINATOR"} <= set(os.environ):
    if "LOCAL_RANK" in os.environ:  # it has its place from another launcher, which sets it
        _drop_defaults()
    else:
        _give_hosts()
_import_next()
