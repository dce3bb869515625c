// A libnvidia-ml.so.1 over the state folder. NVIDIA's own nvml.h declares every function, so a wrong signature does not compile.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "handle.h"

struct nvmlDevice_st devices[MAX_GPUS][MAX_MIG + 1];
static int initialised, counted; // the devices are counted once
static int counts[MAX_GPUS];     // which they are: the library does not count those that it cannot open

// ---- every call: initialised? told to hang? told to fail? device there?

void sleep_ms(long long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

// As a library with a defect does. abort(3) is what a C++ library ends with.
static void crash(const char *function, long long number)
{
    state_note("crashes", function);
    if (number == SIGABRT)
        abort();
    if (number > 0)
        raise((int)number);
    *(volatile int *)8 = 0;
}

static nvmlReturn_t told(const char *function, int gpu)
{
    long long value;
    if (state_in_library() && state_rule("crash", function, gpu, &value))
        crash(function, value);
    while (state_rule("hang", function, gpu, &value)) {
        sleep_ms(value < 0 ? 10 : value);
        if (value >= 0)
            break;
    }
    if (state_rule("fail", function, gpu, &value))
        return value < 0 ? NVML_ERROR_UNKNOWN : (nvmlReturn_t)value;
    return NVML_SUCCESS;
}

nvmlReturn_t enter(const char *function)
{
    return initialised > 0 ? told(function, -1) : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t enter_handle(const char *function, nvmlDevice_t d)
{
    if (initialised <= 0)
        return NVML_ERROR_UNINITIALIZED;
    if (d < &devices[0][0] || d > &devices[MAX_GPUS - 1][MAX_MIG])
        return NVML_ERROR_INVALID_ARGUMENT;
    return told(function, d->gpu);
}

// Calls that touch the hardware: lost devices answer with that alone.
nvmlReturn_t enter_any(const char *function, nvmlDevice_t d)
{
    char how[TEXT];
    TRY(enter_handle(function, d));
    return state_text(how, "gpus/%d/lost", d->gpu) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

nvmlReturn_t enter_whole(const char *function, nvmlDevice_t d)
{
    TRY(enter_any(function, d));
    return d->mig < 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

// ---- values

static nvmlReturn_t copy(char *out, unsigned int length, const char *text)
{
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

nvmlReturn_t number(nvmlDevice_t d, const char *key, long long *out)
{
    bool ok = d->mig < 0 ? state_number(out, "gpus/%d/%s", d->gpu, key) : state_number(out, "gpus/%d/mig/%d/%s", d->gpu, d->mig, key);
    return ok ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t text(nvmlDevice_t d, const char *key, char out[TEXT])
{
    bool ok = d->mig < 0 ? state_text(out, "gpus/%d/%s", d->gpu, key) : state_text(out, "gpus/%d/mig/%d/%s", d->gpu, d->mig, key);
    return ok ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

bool splits(int gpu)
{
    long long mode = 0;
    return state_number(&mode, "gpus/%d/mig_mode", gpu) && mode == NVML_DEVICE_MIG_ENABLE;
}

READING(nvmlDeviceGetPowerUsage, unsigned int, "power_mw")
READING(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, "energy_mj")
READING(nvmlDeviceGetEnforcedPowerLimit, unsigned int, "power_limit_mw")
READING(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, "events")
READING(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, "events")

// ---- library and system

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    long long code = 0;
    if (!state_open())
        return NVML_ERROR_DRIVER_NOT_LOADED;
    TRY(told("nvmlInit_v2", -1));
    state_number(&code, "init");
    if (code != NVML_SUCCESS)
        return (nvmlReturn_t)code;
    for (int i = 0; i < MAX_GPUS; i++)
        for (int j = 0; j <= MAX_MIG; j++)
            devices[i][j] = (struct nvmlDevice_st){i, j - 1};
    if (initialised++ == 0) {
        counted = 0;
        for (int i = 0; i < state_gpus(); i++)
            if (state_open_to_us(i))
                counts[counted++] = i;
        state_leave_open("control");
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void)
{
    TRY(enter(__func__));
    initialised--;
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const words[] = {
        [NVML_SUCCESS] = "Success",
        [NVML_ERROR_UNINITIALIZED] = "Uninitialized",
        [NVML_ERROR_INVALID_ARGUMENT] = "Invalid Argument",
        [NVML_ERROR_NOT_SUPPORTED] = "Not Supported",
        [NVML_ERROR_NO_PERMISSION] = "Insufficient Permissions",
        [NVML_ERROR_NOT_FOUND] = "Not Found",
        [NVML_ERROR_INSUFFICIENT_SIZE] = "Insufficient Size",
        [NVML_ERROR_DRIVER_NOT_LOADED] = "Driver Not Loaded",
        [NVML_ERROR_TIMEOUT] = "Timeout",
        [NVML_ERROR_LIBRARY_NOT_FOUND] = "NVML Shared Library Not Found",
        [NVML_ERROR_FUNCTION_NOT_FOUND] = "Function Not Found",
        [NVML_ERROR_GPU_IS_LOST] = "GPU is lost",
        [NVML_ERROR_RESET_REQUIRED] = "GPU requires reset",
        [NVML_ERROR_OPERATING_SYSTEM] = "GPU access blocked by the operating system",
        [NVML_ERROR_LIB_RM_VERSION_MISMATCH] = "Driver/library version mismatch",
        [NVML_ERROR_IN_USE] = "In use by another client",
        [NVML_ERROR_MEMORY] = "Insufficient Memory",
        [NVML_ERROR_NO_DATA] = "No data",
        [NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = "Argument version mismatch",
    };
    bool known = result < sizeof words / sizeof words[0] && words[result] != NULL;
    return known ? words[result] : "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    char value[TEXT];
    TRY(enter(__func__));
    return state_text(value, "driver") ? copy(version, length, value) : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    char value[TEXT], driver[TEXT - 8];
    TRY(enter(__func__));
    TRY(nvmlSystemGetDriverVersion(driver, sizeof driver));
    snprintf(value, sizeof value, "12.%s", driver);
    return copy(version, length, value);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    char value[TEXT];
    int major, minor;
    TRY(enter(__func__));
    if (version == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!state_text(value, "cuda") || sscanf(value, "%d.%d", &major, &minor) != 2)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    *version = major * 1000 + minor * 10;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

// ---- handles

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    TRY(enter(__func__));
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = (unsigned int)counted;
    return NVML_SUCCESS;
}

// A device lost before it was asked for has no handle; with "handle" in the file its handle and identity still work.
static nvmlReturn_t hand_out(const char *function, int gpu, int mig, nvmlDevice_t *device)
{
    char how[TEXT];
    TRY(enter_handle(function, &devices[gpu][0]));
    if (state_text(how, "gpus/%d/lost", gpu) && strcmp(how, "handle") != 0)
        return NVML_ERROR_GPU_IS_LOST;
    *device = &devices[gpu][mig + 1];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    if (initialised > 0 && (device == NULL || index >= (unsigned int)counted))
        return NVML_ERROR_INVALID_ARGUMENT;
    return initialised > 0 ? hand_out(__func__, counts[index], -1, device) : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    char value[TEXT];
    TRY(enter(__func__));
    if (uuid == NULL || device == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < state_gpus(); i++)
        for (int j = -1; j < MAX_MIG; j++)
            if (text(&devices[i][j + 1], "uuid", value) == NVML_SUCCESS && strcmp(value, uuid) == 0 && state_open_to_us(i))
                return hand_out(__func__, i, j, device);
    return NVML_ERROR_NOT_FOUND;
}

static bool parse_pci(const char *id, nvmlPciInfo_t *out)
{
    return sscanf(id, "%x:%x:%x", &out->domain, &out->bus, &out->device) == 3;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device)
{
    char value[TEXT];
    nvmlPciInfo_t want, have;
    TRY(enter(__func__));
    if (id == NULL || device == NULL || !parse_pci(id, &want))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < state_gpus(); i++)
        if (state_text(value, "gpus/%d/pci", i) && parse_pci(value, &have) && have.domain == want.domain && have.bus == want.bus && have.device == want.device && state_open_to_us(i))
            return hand_out(__func__, i, -1, device);
    return NVML_ERROR_NOT_FOUND;
}

// ---- identity: kept by the driver when a device is lost

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    char value[TEXT];
    TRY(enter_handle(__func__, device));
    TRY(text(device, "uuid", value));
    return copy(uuid, length, value);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    char value[TEXT], profile[TEXT], both[2 * TEXT + 8];
    TRY(enter_handle(__func__, device));
    TRY(text(&devices[device->gpu][0], "name", value));
    if (device->mig < 0)
        return copy(name, length, value);
    TRY(text(device, "profile", profile));
    snprintf(both, sizeof both, "%s MIG %s", value, profile);
    return copy(name, length, both);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    TRY(enter_handle(__func__, device));
    if (index == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *index = (unsigned int)device->mig;
    for (int i = 0; device->mig < 0 && i < counted; i++)
        if (counts[i] == device->gpu)
            *index = (unsigned int)i;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    long long value;
    TRY(enter_handle(__func__, device));
    if (minor == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(device->mig < 0 ? number(device, "minor", &value) : NVML_ERROR_NOT_SUPPORTED);
    *minor = (unsigned int)value;
    return NVML_SUCCESS;
}

nvmlReturn_t fill_pci(const char *id, unsigned int device_id, nvmlPciInfo_t *out)
{
    memset(out, 0, sizeof *out);
    if (!parse_pci(id, out))
        return NVML_ERROR_UNKNOWN;
    out->pciDeviceId = device_id;
    snprintf(out->busId, sizeof out->busId, "%08X:%02X:%02X.0", out->domain, out->bus & 0xFF, out->device & 0xFF);
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.0", out->domain & 0xFFFF, out->bus & 0xFF, out->device & 0xFF);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    char id[TEXT];
    long long device_id = 0x20B210DE;
    TRY(enter_handle(__func__, device));
    if (pci == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(text(&devices[device->gpu][0], "pci", id));
    state_number(&device_id, "gpus/%d/pci_device_id", device->gpu);
    return fill_pci(id, (unsigned int)device_id, pci);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    char value[TEXT];
    TRY(enter_any(__func__, device));
    if (major == NULL || minor == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(text(&devices[device->gpu][0], "compute", value));
    return sscanf(value, "%d.%d", major, minor) == 2 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

// ---- load

static nvmlReturn_t memory(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    long long total, reserved = 0;
    TRY(number(device, "memory_total", &total));
    number(device, "memory_reserved", &reserved);
    out->total = (unsigned long long)total;
    out->reserved = (unsigned long long)reserved;
    out->used = state_used(device->gpu, device->mig);
    if (out->used > out->total - out->reserved)
        out->used = out->total - out->reserved;
    out->free = out->total - out->reserved - out->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    TRY(enter_any(__func__, device));
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    return out->version == nvmlMemory_v2 ? memory(device, out) : NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}

// The first version counts what the driver reserves as used.
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
    nvmlMemory_v2_t m;
    TRY(enter_any(__func__, device));
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(memory(device, &m));
    *out = (nvmlMemory_t){.total = m.total, .free = m.free, .used = m.used + m.reserved};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
    char value[TEXT];
    TRY(enter_whole(__func__, device));
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (splits(device->gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    TRY(text(device, "utilization", value));
    out->memory = 0;
    return sscanf(value, "%u %u", &out->gpu, &out->memory) >= 1 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *out)
{
    long long value;
    TRY(enter_whole(__func__, device));
    if (out == NULL || sensor != NVML_TEMPERATURE_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(number(device, "temperature", &value));
    *out = (unsigned int)value;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *out)
{
    long long value;
    TRY(enter_whole(__func__, device));
    if (out == NULL || out->sensorType != NVML_TEMPERATURE_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (out->version != nvmlTemperature_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    TRY(number(device, "temperature", &value));
    out->temperature = (int)value;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t which, unsigned int *out)
{
    static const char *const keys[] = {"shutdown", "slowdown", "memory_max", "gpu_max"};
    long long value;
    TRY(enter_whole(__func__, device));
    if (out == NULL || which >= NVML_TEMPERATURE_THRESHOLD_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(which < 4 ? number(device, keys[which], &value) : NVML_ERROR_NOT_SUPPORTED);
    *out = (unsigned int)value;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *out)
{
    long long value;
    TRY(enter_whole(__func__, device));
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (out->version != nvmlMarginTemperature_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    TRY(number(device, "margin", &value));
    out->marginTemperature = (int)value;
    return NVML_SUCCESS;
}

static nvmlReturn_t clock_of(nvmlDevice_t device, nvmlClockType_t type, const char *suffix, unsigned int *out)
{
    char key[32];
    long long value;
    if (out == NULL || type >= NVML_CLOCK_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(key, sizeof key, "clock_%s%s", type == NVML_CLOCK_MEM ? "mem" : "sm", suffix);
    TRY(type == NVML_CLOCK_VIDEO ? NVML_ERROR_NOT_SUPPORTED : number(device, key, &value));
    *out = (unsigned int)value;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
    TRY(enter_whole(__func__, device));
    return clock_of(device, type, "", clock);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
    TRY(enter_whole(__func__, device));
    return clock_of(device, type, "_max", clock);
}

// The file `fabric` holds: state, mask of what is wrong, and the status of the probe, 0 if it has none.
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info)
{
    char value[TEXT];
    unsigned int state, mask, status = 0;
    TRY(enter_whole(__func__, device));
    if (info == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (info->version != nvmlGpuFabricInfo_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    TRY(text(device, "fabric", value));
    if (sscanf(value, "%u %x %u", &state, &mask, &status) < 2)
        return NVML_ERROR_UNKNOWN;
    info->status = (nvmlReturn_t)status;
    info->state = (nvmlGpuFabricState_t)state;
    info->healthMask = mask;
    return NVML_SUCCESS;
}
