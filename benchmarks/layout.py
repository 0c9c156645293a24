"""The tables of an Nsight Systems SQLite export (schema 3.20) that a CUDA and NVTX recording fills."""

from __future__ import annotations

import sqlite3

ACTIVITY = "start! end! deviceId! contextId! greenContextId streamId! correlationId globalPid"
TABLES = {
    "NVTX_EVENTS": (
        "start! end eventType! rangeId category color text:TEXT globalTid endGlobalTid textId domainId uint64Value "
        "int64Value doubleValue:REAL uint32Value int32Value floatValue:REAL jsonTextId jsonText:TEXT binaryData:TEXT"
    ),
    "CUDA_GRAPH_NODE_EVENTS": "start! end! eventClass! globalTid nameId! graphNodeId! originalGraphNodeId",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (
        "deviceId! contextId! greenContextId streamId! correlationId globalPid eventId! eventSyncId"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start! end! eventClass! globalTid correlationId nameId! returnValue! callchainId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{ACTIVITY} deprecatedSyncType syncType! eventId! eventSyncId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        f"{ACTIVITY} bytes! copyKind! deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId "
        "dstContextId migrationCause graphNodeId virtualAddress copyCount"
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        f"{ACTIVITY} demangledName! shortName! mangledName launchType cacheConfig registersPerThread! gridX! gridY! "
        "gridZ! blockX! blockY! blockZ! staticSharedMemory! dynamicSharedMemory! localMemoryPerThread! "
        "localMemoryTotal! gridId! sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{ACTIVITY} value! bytes! graphNodeId memKind",
    "PROCESSES": "globalPid! pid! name:TEXT",
    "TARGET_INFO_GPU": (
        "vmId! id! name:TEXT busLocation:TEXT isDiscrete l2CacheSize totalMemory memoryBandwidth clockRate smCount "
        "pwGpuId uuid:TEXT luid chipName:TEXT cuDevice ctxswDevPath:TEXT ctrlDevPath:TEXT revision nodeMask "
        "constantMemory maxIPC maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin maxShmemPerSm "
        "maxRegistersPerSm threadsPerWarp asyncEngines maxWarpsPerSm maxBlocksPerSm maxThreadsPerBlock maxBlockDimX "
        "maxBlockDimY maxBlockDimZ maxGridDimX maxGridDimY maxGridDimZ computeMajor computeMinor smMajor smMinor"
    ),
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId! pid!",
    "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName!:TEXT name!:TEXT nameEnum! value!:TEXT",
    "META_DATA_CAPTURE": "name!:TEXT value:TEXT",
    "META_DATA_EXPORT": "name!:TEXT value:TEXT",
    "DIAGNOSTIC_EVENT": "timestamp! timestampType! source! severity! text!:TEXT globalPid",
}
"""Columns in their order; ``!`` is NOT NULL, and the type is INTEGER where none is given."""

STRINGS = "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)"


def create_tables(connection: sqlite3.Connection) -> None:
    """Create all tables, empty."""
    connection.execute(STRINGS)
    for table, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {table} ({', '.join(_declared(column) for column in columns.split())})")


def _declared(column: str) -> str:
    name, _, kind = column.partition(":")
    return f'"{name.rstrip("!")}" {kind or "INTEGER"}{" NOT NULL" if "!" in name else ""}'
