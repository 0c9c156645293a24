"""A stand-in for SGLang on a plain machine: its endpoints, its process tree, its ranges, and its ways to fail.

A main process speaks HTTP; one worker per rank runs steps, pushes profkit's ranges and notes when steps begin, as the
plugin does. With `PROFKIT_RECORDER=torch` each rank leaves a file of the PyTorch profiler for a window.
`STANDIN_MODE` says how it misbehaves, one or more of: slow_start, never_ready, crash_start, crash_window, graph_crash,
hang, slow_stop; refuse_window, refuse_first (the first window), late (the first is opened after 3 s),
late_second_answer (the second is opened at once and answered after 4 s), stall (nothing goes on for 4 s after a window,
as while a recorder writes); one_rank (the plugin runs in the first rank only), hook_fault (it notes a fault when a
window opens).
"""

from __future__ import annotations
