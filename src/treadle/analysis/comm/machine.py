"""The machine that options ask for, as a model of compute and of communication."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.analysis.comm.cost import CollectiveCosts
from treadle.analysis.comm.hardware import HARDWARE, Hardware, hardware_named, read_hardware
from treadle.analysis.comm.measured import MeasuredTimes, read_measured
from treadle.analysis.comm.tasks import TaskGraph, tasks_of
from treadle.analysis.cost import Roofline
from treadle.analysis.devices import DEVICES, read_calibration
from treadle.core.errors import UsageError
from treadle.core.options import Options
from treadle.ir.change import devices_of
from treadle.ir.program import Collective, Program


@dataclass(frozen=True)
class CommMachine:
    """Ranks of a job on their hardware."""

    costs: CollectiveCosts
    world: int
    cost_file: str | None = None

    @property
    def hardware(self) -> Hardware:
        """The nodes and their links."""
        return self.costs.hardware

    def compute(self, program: Program) -> Roofline:
        """What kernels cost on its devices."""
        table = DEVICES if self.cost_file is None else read_calibration(self.cost_file)
        return Roofline(program, table[self.hardware.device])

    def tasks(self, program: Program) -> TaskGraph:
        """The program as tasks on this machine."""
        return tasks_of(program, self.compute(program), self.costs, self.world)

    def at_world(self, world: int) -> CommMachine:
        """The same machine with as many nodes as so many ranks need."""
        return CommMachine(self.costs, world, self.cost_file)


def machine_of(program: Program, options: Options) -> CommMachine:
    """The machine that the options name, or one of the kind that the program is for."""
    table, measured = dict(HARDWARE), MeasuredTimes()
    if options.cost_file is not None:
        table, measured = read_hardware(options.cost_file), read_measured(options.cost_file)
    hardware = hardware_named(options.hardware or _usual(program, options, table), table)
    world = options.world or _world_of(program, hardware)
    if hardware.nodes > 1 and world > hardware.world:
        message = f"hardware '{hardware.name}' has {hardware.world} ranks, fewer than {world}"
        notes = ("without a number of nodes there are as many as the ranks need",)
        raise UsageError(message, code="COL007", notes=notes)
    if options.cost_file is None and hardware.device not in DEVICES:
        message = f"hardware '{hardware.name}' is of unknown devices '{hardware.device}'"
        raise UsageError(message, code="COL007")
    return CommMachine(CollectiveCosts(hardware, measured), world, options.cost_file)


def _world_of(program: Program, hardware: Hardware) -> int:
    """As many ranks as nodes were asked for, else as the program was captured with."""
    ranks = [op.ranks for op in program.leaves if isinstance(op, Collective) and op.ranks]
    if hardware.nodes > 1 or not ranks:
        return hardware.world
    return max(map(max, ranks)) + 1


def _usual(program: Program, options: Options, table: dict[str, Hardware]) -> str:
    if all(device.startswith("cpu") for device in devices_of(program)):
        return "gloo-8"
    wanted = f"{options.target}-8"
    return wanted if wanted in table else "h100-8"
