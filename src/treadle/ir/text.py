"""One text form for programs: `parse_program(show_program(p)) == p`."""

from treadle.ir.text_parse import parse_program
from treadle.ir.text_print import show_buffer, show_name, show_operation, show_program

__all__ = ["parse_program", "show_buffer", "show_name", "show_operation", "show_program"]
