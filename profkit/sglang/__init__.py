"""The SGLang plugin: ranges around the parts of a step, and the modules of captured graphs.

The entry point ``profkit`` of the group ``sglang.srt.plugins`` is ``profkit.sglang.plugin:activate``. SGLang calls
it in each of its processes; it does nothing unless capture has set the environment:

    PROFKIT_SGLANG=1      turns the plugin on
    PROFKIT_OUT=FOLDER    where each process leaves its record: ``plugin-PID.json`` (probes found and missing, faults,
                          ranks) and ``modules-PID.jsonl.gz`` (module by moment during graph capture); without it
                          only ranges are pushed, and no steps are timed (``steps-PID.bin``);
                          with ``cupti`` also when each window ended (``ends-PID.txt``)
    PROFKIT_RECORDER=...  ``nsys`` (the default) and ``cupti`` see NVTX ranges, ``torch`` those of its own profiler;
                          with ``cupti`` this process records itself (``cupti_recorder``)

``SGLANG_PLUGINS``, where it is set, must name ``profkit`` too. Nothing here needs torch, SGLang or nvtx to be
imported; they are loaded when the plugin is turned on.
"""

ENABLE_VARIABLE = "PROFKIT_SGLANG"
FOLDER_VARIABLE = "PROFKIT_OUT"
RECORDER_VARIABLE = "PROFKIT_RECORDER"

__all__ = ["ENABLE_VARIABLE", "FOLDER_VARIABLE", "RECORDER_VARIABLE"]
