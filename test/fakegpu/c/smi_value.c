// Readings as the text that the real nvidia-smi prints for --query-gpu; the XML uses the same.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "smi.h"

static nvmlReturn_t formatted(nvmlReturn_t result, char out[TEXT], const char *format, double value)
{
    if (result == NVML_SUCCESS)
        snprintf(out, TEXT, format, value);
    return result;
}

static nvmlReturn_t word(nvmlReturn_t result, char out[TEXT], const char *value)
{
    if (result == NVML_SUCCESS)
        snprintf(out, TEXT, "%s", value);
    return result;
}

// A reading that is one unsigned number.
#define NUMBER(name, type, format, scale, call)                     \
    static nvmlReturn_t name(nvmlDevice_t d, char out[TEXT])        \
    {                                                               \
        type v = 0;                                                 \
        nvmlReturn_t result = call;                                 \
        return formatted(result, out, format, (double)v / scale);   \
    }

NUMBER(index_of, unsigned int, "%.0f", 1, nvmlDeviceGetIndex(d, &v))
NUMBER(minor_of, unsigned int, "%.0f", 1, nvmlDeviceGetMinorNumber(d, &v))
NUMBER(power, unsigned int, "%.2f", 1000, nvmlDeviceGetPowerUsage(d, &v))
NUMBER(power_limit, unsigned int, "%.2f", 1000, nvmlDeviceGetEnforcedPowerLimit(d, &v))
NUMBER(clock_graphics, unsigned int, "%.0f", 1, nvmlDeviceGetClockInfo(d, NVML_CLOCK_GRAPHICS, &v))
NUMBER(clock_sm, unsigned int, "%.0f", 1, nvmlDeviceGetClockInfo(d, NVML_CLOCK_SM, &v))
NUMBER(clock_mem, unsigned int, "%.0f", 1, nvmlDeviceGetClockInfo(d, NVML_CLOCK_MEM, &v))
NUMBER(max_graphics, unsigned int, "%.0f", 1, nvmlDeviceGetMaxClockInfo(d, NVML_CLOCK_GRAPHICS, &v))
NUMBER(max_sm, unsigned int, "%.0f", 1, nvmlDeviceGetMaxClockInfo(d, NVML_CLOCK_SM, &v))
NUMBER(max_mem, unsigned int, "%.0f", 1, nvmlDeviceGetMaxClockInfo(d, NVML_CLOCK_MEM, &v))
NUMBER(temp_shutdown, unsigned int, "%.0f", 1, nvmlDeviceGetTemperatureThreshold(d, NVML_TEMPERATURE_THRESHOLD_SHUTDOWN, &v))
NUMBER(temp_slowdown, unsigned int, "%.0f", 1, nvmlDeviceGetTemperatureThreshold(d, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, &v))
NUMBER(temp_gpu_max, unsigned int, "%.0f", 1, nvmlDeviceGetTemperatureThreshold(d, NVML_TEMPERATURE_THRESHOLD_GPU_MAX, &v))
NUMBER(temp_mem_max, unsigned int, "%.0f", 1, nvmlDeviceGetTemperatureThreshold(d, NVML_TEMPERATURE_THRESHOLD_MEM_MAX, &v))
NUMBER(ecc_corrected, unsigned long long, "%.0f", 1, nvmlDeviceGetTotalEccErrors(d, NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_VOLATILE_ECC, &v))
NUMBER(ecc_uncorrected, unsigned long long, "%.0f", 1, nvmlDeviceGetTotalEccErrors(d, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, &v))
NUMBER(ecc_corrected_ever, unsigned long long, "%.0f", 1, nvmlDeviceGetTotalEccErrors(d, NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_AGGREGATE_ECC, &v))
NUMBER(ecc_uncorrected_ever, unsigned long long, "%.0f", 1, nvmlDeviceGetTotalEccErrors(d, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_AGGREGATE_ECC, &v))

static nvmlReturn_t uuid(nvmlDevice_t d, char out[TEXT]) { return nvmlDeviceGetUUID(d, out, TEXT); }
static nvmlReturn_t name(nvmlDevice_t d, char out[TEXT]) { return nvmlDeviceGetName(d, out, TEXT); }
static nvmlReturn_t driver(nvmlDevice_t d, char out[TEXT]) { (void)d; return nvmlSystemGetDriverVersion(out, TEXT); }

static nvmlReturn_t count(nvmlDevice_t d, char out[TEXT])
{
    unsigned int n = 0;
    (void)d;
    nvmlReturn_t result = nvmlDeviceGetCount_v2(&n);
    return formatted(result, out, "%.0f", n);
}

static nvmlReturn_t now(nvmlDevice_t d, char out[TEXT])
{
    time_t t = time(NULL);
    (void)d;
    strftime(out, TEXT, "%Y/%m/%d %H:%M:%S.000", localtime(&t));
    return NVML_SUCCESS;
}

#define PCI(name, format, ...)                                   \
    static nvmlReturn_t name(nvmlDevice_t d, char out[TEXT])     \
    {                                                            \
        nvmlPciInfo_t p;                                         \
        nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(d, &p);    \
        if (result == NVML_SUCCESS)                              \
            snprintf(out, TEXT, format, __VA_ARGS__);            \
        return result;                                           \
    }

PCI(bus_id, "%s", p.busId)
PCI(pci_domain, "%04X", p.domain)
PCI(pci_bus, "%02X", p.bus)
PCI(pci_device, "%02X", p.device)
PCI(pci_device_id, "%08X", p.pciDeviceId)
PCI(pci_domain_hex, "0x%04X", p.domain)
PCI(pci_bus_hex, "0x%02X", p.bus)
PCI(pci_device_hex, "0x%02X", p.device)
PCI(pci_device_id_hex, "0x%08X", p.pciDeviceId)

static nvmlReturn_t compute_cap(nvmlDevice_t d, char out[TEXT])
{
    int major, minor;
    nvmlReturn_t result = nvmlDeviceGetCudaComputeCapability(d, &major, &minor);
    if (result == NVML_SUCCESS)
        snprintf(out, TEXT, "%d.%d", major, minor);
    return result;
}

#define MEMORY(name, part)                                                                          \
    static nvmlReturn_t name(nvmlDevice_t d, char out[TEXT])                                        \
    {                                                                                               \
        nvmlMemory_v2_t m = {.version = nvmlMemory_v2};                                             \
        nvmlReturn_t result = nvmlDeviceGetMemoryInfo_v2(d, &m);                                    \
        return formatted(result, out, "%.0f", (double)(m.part >> 20));                              \
    }

MEMORY(memory_total, total)
MEMORY(memory_used, used)
MEMORY(memory_free, free)
MEMORY(memory_reserved, reserved)

static nvmlReturn_t utilization_gpu(nvmlDevice_t d, char out[TEXT])
{
    nvmlUtilization_t u = {0};
    nvmlReturn_t result = nvmlDeviceGetUtilizationRates(d, &u);
    return formatted(result, out, "%.0f", u.gpu);
}

static nvmlReturn_t utilization_memory(nvmlDevice_t d, char out[TEXT])
{
    nvmlUtilization_t u = {0};
    nvmlReturn_t result = nvmlDeviceGetUtilizationRates(d, &u);
    return formatted(result, out, "%.0f", u.memory);
}

static nvmlReturn_t temperature(nvmlDevice_t d, char out[TEXT])
{
    nvmlTemperature_t t = {.version = nvmlTemperature_v1, .sensorType = NVML_TEMPERATURE_GPU};
    nvmlReturn_t result = nvmlDeviceGetTemperatureV(d, &t);
    return formatted(result, out, "%.0f", t.temperature);
}

static nvmlReturn_t margin(nvmlDevice_t d, char out[TEXT])
{
    nvmlMarginTemperature_t m = {.version = nvmlMarginTemperature_v1};
    nvmlReturn_t result = nvmlDeviceGetMarginTemperature(d, &m);
    return formatted(result, out, "%.0f", m.marginTemperature);
}

// Field values carry their own result each.
static nvmlReturn_t from_field(nvmlDevice_t d, unsigned int id, char out[TEXT])
{
    nvmlFieldValue_t f = {.fieldId = id};
    nvmlReturn_t result = nvmlDeviceGetFieldValues(d, 1, &f);
    if (result == NVML_SUCCESS)
        result = f.nvmlReturn;
    return formatted(result, out, "%.0f", f.valueType == NVML_VALUE_TYPE_SIGNED_INT ? f.value.siVal : (double)f.value.uiVal);
}

static nvmlReturn_t temperature_memory(nvmlDevice_t d, char out[TEXT]) { return from_field(d, NVML_FI_DEV_MEMORY_TEMP, out); }
static nvmlReturn_t tlimit_shutdown(nvmlDevice_t d, char out[TEXT]) { return from_field(d, NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT, out); }
static nvmlReturn_t tlimit_slowdown(nvmlDevice_t d, char out[TEXT]) { return from_field(d, NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT, out); }
static nvmlReturn_t tlimit_mem_max(nvmlDevice_t d, char out[TEXT]) { return from_field(d, NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT, out); }
static nvmlReturn_t tlimit_gpu_max(nvmlDevice_t d, char out[TEXT]) { return from_field(d, NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT, out); }

static nvmlReturn_t recovery(nvmlDevice_t d, char out[TEXT])
{
    static const char *const words[] = {"None", "Reset", "Reboot", "Drain P2P", "Drain and Reset", "Recover IMEX Domain"};
    nvmlReturn_t result = from_field(d, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, out);
    unsigned long n = strtoul(out, NULL, 10);
    return word(result, out, n < 6 ? words[n] : "Another Action");
}

static nvmlReturn_t persistence(nvmlDevice_t d, char out[TEXT])
{
    nvmlEnableState_t v = 0;
    nvmlReturn_t result = nvmlDeviceGetPersistenceMode(d, &v);
    return word(result, out, v == NVML_FEATURE_ENABLED ? "Enabled" : "Disabled");
}

static nvmlReturn_t compute_mode(nvmlDevice_t d, char out[TEXT])
{
    static const char *const words[] = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"};
    nvmlComputeMode_t v = 0;
    nvmlReturn_t result = nvmlDeviceGetComputeMode(d, &v);
    return word(result, out, v < 4 ? words[v] : "Unknown");
}

static nvmlReturn_t ecc_mode(nvmlDevice_t d, char out[TEXT])
{
    nvmlEnableState_t v = 0, pending;
    nvmlReturn_t result = nvmlDeviceGetEccMode(d, &v, &pending);
    return word(result, out, v == NVML_FEATURE_ENABLED ? "Enabled" : "Disabled");
}

static nvmlReturn_t mig_current(nvmlDevice_t d, char out[TEXT])
{
    unsigned int v = 0, pending;
    nvmlReturn_t result = nvmlDeviceGetMigMode(d, &v, &pending);
    return word(result, out, v != 0 ? "Enabled" : "Disabled");
}

static nvmlReturn_t mig_pending(nvmlDevice_t d, char out[TEXT])
{
    unsigned int v, pending = 0;
    nvmlReturn_t result = nvmlDeviceGetMigMode(d, &v, &pending);
    return word(result, out, pending != 0 ? "Enabled" : "Disabled");
}

static nvmlReturn_t events(nvmlDevice_t d, char out[TEXT])
{
    unsigned long long v;
    nvmlReturn_t result = nvmlDeviceGetCurrentClocksEventReasons(d, &v);
    if (result == NVML_SUCCESS)
        snprintf(out, TEXT, "0x%016llX", v);
    return result;
}

static nvmlReturn_t retired_single(nvmlDevice_t d, char out[TEXT])
{
    unsigned int n = 0;
    nvmlReturn_t result = nvmlDeviceGetRetiredPages(d, NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS, &n, NULL);
    return formatted(result == NVML_ERROR_INSUFFICIENT_SIZE ? NVML_SUCCESS : result, out, "%.0f", n);
}

static nvmlReturn_t retired_double(nvmlDevice_t d, char out[TEXT])
{
    unsigned int n = 0;
    nvmlReturn_t result = nvmlDeviceGetRetiredPages(d, NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR, &n, NULL);
    return formatted(result == NVML_ERROR_INSUFFICIENT_SIZE ? NVML_SUCCESS : result, out, "%.0f", n);
}

static nvmlReturn_t retired_pending(nvmlDevice_t d, char out[TEXT])
{
    nvmlEnableState_t v = 0;
    nvmlReturn_t result = nvmlDeviceGetRetiredPagesPendingStatus(d, &v);
    return word(result, out, v == NVML_FEATURE_ENABLED ? "Yes" : "No");
}

#define REMAPPED(name, part, yes)                                                                       \
    static nvmlReturn_t name(nvmlDevice_t d, char out[TEXT])                                            \
    {                                                                                                   \
        unsigned int v[4] = {0};                                                                        \
        nvmlReturn_t result = nvmlDeviceGetRemappedRows(d, &v[0], &v[1], &v[2], &v[3]);                 \
        return yes ? word(result, out, v[part] ? "Yes" : "No") : formatted(result, out, "%.0f", v[part]); \
    }

REMAPPED(remapped_correctable, 0, false)
REMAPPED(remapped_uncorrectable, 1, false)
REMAPPED(remapped_pending, 2, true)
REMAPPED(remapped_failure, 3, true)

static nvmlReturn_t none(nvmlDevice_t d, char out[TEXT])
{
    (void)d;
    (void)out;
    return NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t no_display(nvmlDevice_t d, char out[TEXT]) { (void)d; return word(NVML_SUCCESS, out, "Disabled"); }
static nvmlReturn_t pstate(nvmlDevice_t d, char out[TEXT]) { (void)d; return word(NVML_SUCCESS, out, "P0"); }

typedef struct {
    const char *name, *unit;
    nvmlReturn_t (*read)(nvmlDevice_t, char[TEXT]);
} field_t;

// The names are those of the real tool's --help-query-gpu; what only the XML shows, or shows in another form, begins with "xml." and cannot be asked for.
static const field_t fields[] = {
    {"timestamp", "", now}, {"driver_version", "", driver}, {"count", "", count},
    {"name", "", name}, {"gpu_name", "", name}, {"index", "", index_of}, {"uuid", "", uuid}, {"gpu_uuid", "", uuid},
    {"serial", "", none}, {"gpu_serial", "", none}, {"vbios_version", "", none}, {"display_mode", "", no_display}, {"display_active", "", no_display},
    {"pci.bus_id", "", bus_id}, {"gpu_bus_id", "", bus_id}, {"pci.domain", "", pci_domain_hex}, {"pci.bus", "", pci_bus_hex},
    {"pci.device", "", pci_device_hex}, {"pci.device_id", "", pci_device_id_hex}, {"compute_cap", "", compute_cap},
    {"memory.total", "MiB", memory_total}, {"memory.used", "MiB", memory_used}, {"memory.free", "MiB", memory_free}, {"memory.reserved", "MiB", memory_reserved},
    {"utilization.gpu", "%", utilization_gpu}, {"utilization.memory", "%", utilization_memory},
    {"temperature.gpu", "", temperature}, {"temperature.memory", "", temperature_memory}, {"temperature.gpu.tlimit", "", margin},
    {"fan.speed", "%", none}, {"pstate", "", pstate},
    {"power.draw", "W", power}, {"power.draw.average", "W", power}, {"power.draw.instant", "W", power},
    {"power.limit", "W", power_limit}, {"enforced.power.limit", "W", power_limit},
    {"clocks.gr", "MHz", clock_graphics}, {"clocks.current.graphics", "MHz", clock_graphics}, {"clocks.sm", "MHz", clock_sm},
    {"clocks.current.sm", "MHz", clock_sm}, {"clocks.mem", "MHz", clock_mem}, {"clocks.current.memory", "MHz", clock_mem},
    {"clocks.max.gr", "MHz", max_graphics}, {"clocks.max.graphics", "MHz", max_graphics}, {"clocks.max.sm", "MHz", max_sm},
    {"clocks.max.mem", "MHz", max_mem}, {"clocks.max.memory", "MHz", max_mem},
    {"clocks_event_reasons.active", "", events}, {"clocks_throttle_reasons.active", "", events},
    {"ecc.mode.current", "", ecc_mode}, {"ecc.mode.pending", "", ecc_mode},
    {"ecc.errors.corrected.volatile.total", "", ecc_corrected}, {"ecc.errors.uncorrected.volatile.total", "", ecc_uncorrected},
    {"ecc.errors.corrected.aggregate.total", "", ecc_corrected_ever}, {"ecc.errors.uncorrected.aggregate.total", "", ecc_uncorrected_ever},
    {"retired_pages.single_bit_ecc.count", "", retired_single}, {"retired_pages.double_bit.count", "", retired_double}, {"retired_pages.pending", "", retired_pending},
    {"persistence_mode", "", persistence}, {"compute_mode", "", compute_mode}, {"mig.mode.current", "", mig_current}, {"mig.mode.pending", "", mig_pending},
    {"gpu_recovery_action", "", recovery},
    {"xml.minor", "", minor_of}, {"xml.domain", "", pci_domain}, {"xml.bus", "", pci_bus}, {"xml.device", "", pci_device}, {"xml.device_id", "", pci_device_id},
    {"xml.temperature", "C", temperature}, {"xml.memory_temp", "C", temperature_memory}, {"xml.tlimit", "C", margin},
    {"xml.shutdown", "C", temp_shutdown}, {"xml.slowdown", "C", temp_slowdown}, {"xml.gpu_max", "C", temp_gpu_max}, {"xml.mem_max", "C", temp_mem_max},
    {"xml.tlimit_shutdown", "C", tlimit_shutdown}, {"xml.tlimit_slowdown", "C", tlimit_slowdown}, {"xml.tlimit_gpu_max", "C", tlimit_gpu_max},
    {"xml.tlimit_mem_max", "C", tlimit_mem_max}, {"xml.remapped_corr", "", remapped_correctable}, {"xml.remapped_unc", "", remapped_uncorrectable},
    {"xml.remapped_pending", "", remapped_pending}, {"xml.remapped_failure", "", remapped_failure},
};

static const field_t *find(const char *field)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (strcmp(fields[i].name, field) == 0)
            return &fields[i];
    return NULL;
}

bool value_known(const char *field, const char **unit)
{
    const field_t *f = find(field);
    if (f != NULL)
        *unit = f->unit;
    return f != NULL;
}

nvmlReturn_t value_read(const char *field, nvmlDevice_t device, char out[TEXT])
{
    const field_t *f = find(field);
    out[0] = '\0';
    return f != NULL ? f->read(device, out) : NVML_ERROR_NOT_SUPPORTED;
}
