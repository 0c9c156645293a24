"""Windows of a recorder that lives in the server's process: opened and closed with SGLang's own profiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .cupti_recorder import CuptiRecorder
from .record import ProcessRecord
from .window_ends import note_end


class Windows:
    """The windows of this process. ``recorder`` is ``cupti``, or one that records from outside, which needs none.

    The end of each is noted in ``folder``, if there is one, before its dump is written.

    Nothing here raises into the server: what fails is noted in the process's record.
    """

    def __init__(self, recorder: str, record: ProcessRecord, folder: Path | None = None) -> None:
        self.records_itself = recorder == "cupti"
        self._folder = folder
        self._record = record
        self._recorder: CuptiRecorder | None = None

    def prepare(self) -> None:
        """A model is loaded, and graphs may be captured from now on."""
        if not self.records_itself or self._recorder is not None:
            return
        try:
            recorder = CuptiRecorder()
            recorder.note_graph_nodes()
            self._recorder = recorder
        except Exception as error:
            self._record.fault("cupti", error)

    def open(self, profiler: Any) -> None:
        """SGLang's ``profiler`` has started."""
        if self._recorder is None:
            return
        try:
            self._recorder.open(Path(profiler.torch_profiler_output_dir))
        except Exception as error:
            self._record.fault("cupti", error)

    def close(self) -> None:
        """SGLang's profiler is about to stop."""
        if self._recorder is None:
            return
        try:
            remark = self._recorder.close(lambda: note_end(self._folder))
            if remark is not None:
                self._record.remark(remark)
        except Exception as error:
            self._record.fault("cupti", error)
