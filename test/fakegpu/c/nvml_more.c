// The second half of the fake library: health, MIG, links, processes, events.
#include "handle.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

READING(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, "persistence")
READING(nvmlDeviceGetComputeMode, nvmlComputeMode_t, "compute_mode")
READING(nvmlDeviceGetNumaNodeId, unsigned int, "numa")

// ---- what monitors ask for; gpuard itself calls none of these

READING(nvmlDeviceGetFanSpeed, unsigned int, "fan")
READING(nvmlDeviceGetPerformanceState, nvmlPstates_t, "pstate")
READING(nvmlDeviceGetDisplayActive, nvmlEnableState_t, "display_active")
READING(nvmlDeviceGetDisplayMode, nvmlEnableState_t, "display_mode")
READING(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, "pcie_generation")
READING(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, "pcie_width")

// A reading with the microseconds over which it was sampled.
#define SAMPLED(function, key)                                                              \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int *out, unsigned int *period)     \
    {                                                                                       \
        long long value;                                                                    \
        TRY(enter_whole(__func__, device));                                                 \
        if (out == NULL || period == NULL)                                                  \
            return NVML_ERROR_INVALID_ARGUMENT;                                             \
        TRY(number(device, key, &value));                                                   \
        *out = (unsigned int)value;                                                         \
        *period = 167000;                                                                   \
        return NVML_SUCCESS;                                                                \
    }

SAMPLED(nvmlDeviceGetEncoderUtilization, "encoder")
SAMPLED(nvmlDeviceGetDecoderUtilization, "decoder")

// The file `pcie_kbps` holds: sent, received.
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned int *out)
{
    char value[TEXT];
    unsigned int sent, received;
    TRY(enter_whole(__func__, device));
    if (out == NULL || counter >= NVML_PCIE_UTIL_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(text(device, "pcie_kbps", value));
    if (sscanf(value, "%u %u", &sent, &received) != 2)
        return NVML_ERROR_UNKNOWN;
    *out = counter == NVML_PCIE_UTIL_TX_BYTES ? sent : received;
    return NVML_SUCCESS;
}

// The file `bar1` holds: total, used, in bytes.
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *out)
{
    char value[TEXT];
    TRY(enter_whole(__func__, device));
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(text(device, "bar1", value));
    if (sscanf(value, "%llu %llu", &out->bar1Total, &out->bar1Used) != 2)
        return NVML_ERROR_UNKNOWN;
    out->bar1Free = out->bar1Total - out->bar1Used;
    return NVML_SUCCESS;
}

// ---- health

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
    long long value;
    TRY(enter_whole(__func__, device));
    if (current == NULL || pending == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(number(device, "ecc", &value));
    *current = *pending = (nvmlEnableState_t)value;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter, unsigned long long *out)
{
    char key[64];
    long long mode = 0, value;
    TRY(enter_whole(__func__, device));
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(number(device, "ecc", &mode));
    snprintf(key, sizeof key, "ecc_%scorrected%s", type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED ? "un" : "", counter == NVML_AGGREGATE_ECC ? "_aggregate" : "");
    TRY(mode != 0 ? number(device, key, &value) : NVML_ERROR_NOT_SUPPORTED);
    *out = (unsigned long long)value;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable, unsigned int *pending, unsigned int *failed)
{
    char value[TEXT];
    TRY(enter_whole(__func__, device));
    if (correctable == NULL || uncorrectable == NULL || pending == NULL || failed == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(splits(device->gpu) ? NVML_ERROR_NOT_SUPPORTED : text(device, "remapped", value));
    return sscanf(value, "%u %u %u %u", correctable, uncorrectable, pending, failed) == 4 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

// The file `retired` holds: single-bit pages, double-bit pages, pending (0 or 1).
static nvmlReturn_t retired(nvmlDevice_t device, unsigned int out[3])
{
    char value[TEXT];
    TRY(text(device, "retired", value));
    return sscanf(value, "%u %u %u", &out[0], &out[1], &out[2]) == 3 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count, unsigned long long *addresses, unsigned long long *times)
{
    unsigned int counts[3];
    TRY(enter_whole(__func__, device));
    if (count == NULL || cause >= NVML_PAGE_RETIREMENT_CAUSE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(retired(device, counts));
    unsigned int room = *count, have = counts[cause];
    *count = have;
    if (room < have)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < have; i++) {
        if (addresses == NULL)
            return NVML_ERROR_INVALID_ARGUMENT;
        addresses[i] = 0x1000ULL * (i + 1);
        if (times != NULL)
            times[i] = 1700000000ULL + i;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count, unsigned long long *addresses)
{
    TRY(enter_whole(__func__, device));
    return nvmlDeviceGetRetiredPages_v2(device, cause, count, addresses, NULL);
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t *pending)
{
    unsigned int counts[3];
    TRY(enter_whole(__func__, device));
    if (pending == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(retired(device, counts));
    *pending = counts[2] != 0 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

static void field(nvmlDevice_t device, nvmlFieldValue_t *f)
{
    static const struct {
        unsigned int id;
        const char *key;
        nvmlValueType_t type;
    } known[] = {
        {NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, "recovery", NVML_VALUE_TYPE_UNSIGNED_INT},
        {NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT, "tlimit_shutdown", NVML_VALUE_TYPE_SIGNED_INT},
        {NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT, "tlimit_slowdown", NVML_VALUE_TYPE_SIGNED_INT},
        {NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT, "tlimit_memory_max", NVML_VALUE_TYPE_SIGNED_INT},
        {NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT, "tlimit_gpu_max", NVML_VALUE_TYPE_SIGNED_INT},
        {NVML_FI_DEV_MEMORY_TEMP, "temperature_memory", NVML_VALUE_TYPE_UNSIGNED_INT},
    };
    long long value;
    f->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].id != f->fieldId || number(device, known[i].key, &value) != NVML_SUCCESS)
            continue;
        f->nvmlReturn = NVML_SUCCESS;
        f->valueType = known[i].type;
        if (known[i].type == NVML_VALUE_TYPE_SIGNED_INT)
            f->value.siVal = (int)value;
        else
            f->value.uiVal = (unsigned int)value;
    }
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    TRY(enter_whole(__func__, device));
    if (values == NULL || count < 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < count; i++)
        field(device, &values[i]);
    return NVML_SUCCESS;
}

// ---- MIG

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    char value[TEXT];
    TRY(enter_whole(__func__, device));
    if (current == NULL || pending == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(text(device, "mig_mode", value));
    int n = sscanf(value, "%u %u", current, pending);
    if (n == 1)
        *pending = *current;
    return n >= 1 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    TRY(enter_whole(__func__, device));
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = splits(device->gpu) ? MAX_MIG - 1 : 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
    long long mode;
    TRY(enter_whole(__func__, device));
    if (mig == NULL || index >= MAX_MIG)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(number(device, "mig_mode", &mode));
    if (mode != NVML_DEVICE_MIG_ENABLE || !state_exists("gpus/%d/mig/%u", device->gpu, index))
        return NVML_ERROR_NOT_FOUND;
    *mig = &devices[device->gpu][index + 1];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is)
{
    TRY(enter_handle(__func__, device));
    if (is == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *is = device->mig >= 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
    TRY(enter_any(__func__, mig));
    if (device == NULL || mig->mig < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &devices[mig->gpu][0];
    return NVML_SUCCESS;
}

static nvmlReturn_t mig_number(nvmlDevice_t device, const char *key, unsigned int *out)
{
    long long value;
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(device->mig >= 0 ? number(device, key, &value) : NVML_ERROR_NOT_SUPPORTED);
    *out = (unsigned int)value;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    TRY(enter_any(__func__, device));
    return mig_number(device, "gi", id);
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
    TRY(enter_any(__func__, device));
    return mig_number(device, "ci", id);
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
    long long total = 0;
    TRY(enter_any(__func__, device));
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(out, 0, sizeof *out);
    TRY(mig_number(device, "slices", &out->gpuInstanceSliceCount));
    TRY(mig_number(device, "ci_slices", &out->computeInstanceSliceCount));
    mig_number(device, "multiprocessors", &out->multiprocessorCount);
    TRY(number(device, "memory_total", &total));
    out->memorySizeMB = (unsigned long long)total >> 20;
    return NVML_SUCCESS;
}

// ---- links

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuTopologyLevel_t *level)
{
    static const struct {
        const char *word;
        nvmlGpuTopologyLevel_t level;
    } levels[] = {{"X", NVML_TOPOLOGY_INTERNAL}, {"PIX", NVML_TOPOLOGY_SINGLE}, {"PXB", NVML_TOPOLOGY_MULTIPLE}, {"PHB", NVML_TOPOLOGY_HOSTBRIDGE}, {"NODE", NVML_TOPOLOGY_NODE}, {"SYS", NVML_TOPOLOGY_SYSTEM}};
    char path[TEXT];
    int nvlinks;
    TRY(enter_whole(__func__, a));
    TRY(enter_whole(__func__, b));
    if (level == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!state_link(a->gpu, b->gpu, &nvlinks, path))
        return NVML_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (strcmp(levels[i].word, path) == 0) {
            *level = levels[i].level;
            return NVML_SUCCESS;
        }
    return NVML_ERROR_UNKNOWN;
}

// With the file `nvswitch` every link ends at that switch (its PCI id). Without it the links to each neighbour are numbered one after the other.
static nvmlReturn_t nvlink_end(nvmlDevice_t device, unsigned int link, char pci[TEXT], nvmlIntNvLinkDeviceType_t *type)
{
    char path[TEXT];
    int n, most = 0, first = 0, gpus = state_gpus();
    if (link >= NVML_NVLINK_MAX_LINKS)
        return NVML_ERROR_INVALID_ARGUMENT;
    bool switched = state_text(pci, "nvswitch");
    *type = switched ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
    for (int j = 0; j < gpus; j++) {
        if (j == device->gpu || !state_link(device->gpu, j, &n, path))
            continue;
        most = n > most ? n : most;
        if (!switched && (int)link >= first && (int)link < first + n)
            return text(&devices[j][0], "pci", pci);
        first += n;
    }
    return switched && (int)link < most ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active)
{
    char pci[TEXT];
    nvmlIntNvLinkDeviceType_t type;
    TRY(enter_whole(__func__, device));
    if (active == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(nvlink_end(device, link, pci, &type));
    *active = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *out)
{
    char pci[TEXT];
    nvmlIntNvLinkDeviceType_t type;
    TRY(enter_whole(__func__, device));
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(nvlink_end(device, link, pci, &type));
    return fill_pci(pci, 0, out);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, nvmlIntNvLinkDeviceType_t *type)
{
    char pci[TEXT];
    TRY(enter_whole(__func__, device));
    return type != NULL ? nvlink_end(device, link, pci, type) : NVML_ERROR_INVALID_ARGUMENT;
}

// ---- processes

static bool listed(nvmlDevice_t device, const process_t *p, size_t kind)
{
    long long gi = -1, ci = -1;
    if (!*(const bool *)((const char *)p + kind))
        return false;
    if (device->mig < 0)
        return true;
    number(device, "gi", &gi);
    number(device, "ci", &ci);
    return p->gi == gi && (p->ci == ci || p->ci == 0xFFFFFFFF);
}

static nvmlReturn_t processes(nvmlDevice_t device, size_t kind, unsigned int *count, nvmlProcessInfo_t *out)
{
    process_t list[MAX_PROCESSES];
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned int room = *count, have = 0;
    int n = state_processes(device->gpu, list);
    for (int i = 0; i < n; i++) {
        if (!listed(device, &list[i], kind))
            continue;
        if (have < room && out != NULL)
            out[have] = (nvmlProcessInfo_t){list[i].pid, list[i].bytes, list[i].gi, list[i].ci};
        have++;
    }
    *count = have;
    return have > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    TRY(enter_any(__func__, device));
    return processes(device, offsetof(process_t, compute), count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    TRY(enter_any(__func__, device));
    return processes(device, offsetof(process_t, graphics), count, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    TRY(enter_any(__func__, device));
    return processes(device, offsetof(process_t, mps), count, infos);
}

// ---- events

struct nvmlEventSet_st {
    int changes; // inotify(7): like the driver, a wait costs nothing while nothing happens
    bool watched[MAX_GPUS];
    int seen[MAX_GPUS]; // lines of `xids` that were there before, or were handed out
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    TRY(enter(__func__));
    if (set == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *set = calloc(1, sizeof **set);
    if (*set == NULL)
        return NVML_ERROR_MEMORY;
    (*set)->changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    TRY(enter(__func__));
    if (set != NULL)
        close(set->changes);
    free(set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    TRY(enter_whole(__func__, device));
    if (types == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *types = nvmlEventTypeXidCriticalError;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
    TRY(enter_whole(__func__, device));
    if (set == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if ((types & ~nvmlEventTypeXidCriticalError) != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    set->watched[device->gpu] = types != 0;
    state_watch(set->changes, device->gpu);
    set->seen[device->gpu] = state_xid_count(device->gpu);
    return NVML_SUCCESS;
}

static long long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    TRY(enter(__func__));
    if (set == NULL || data == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (long long end = now_ms() + timeout_ms;;) {
        for (int i = 0; i < MAX_GPUS; i++) {
            if (!set->watched[i] || !state_xid(i, set->seen[i], &data->eventData, &data->gpuInstanceId, &data->computeInstanceId))
                continue;
            set->seen[i]++;
            data->device = &devices[i][0];
            data->eventType = nvmlEventTypeXidCriticalError;
            return NVML_SUCCESS;
        }
        long long left = end - now_ms();
        if (left <= 0)
            return NVML_ERROR_TIMEOUT;
        if (set->changes < 0) { // this user may have no more of them
            sleep_ms(left < 10 ? left : 10);
            continue;
        }
        char said[4096];
        if (poll(&(struct pollfd){.fd = set->changes, .events = POLLIN}, 1, (int)left) > 0)
            while (read(set->changes, said, sizeof said) > 0)
                ;
    }
}
