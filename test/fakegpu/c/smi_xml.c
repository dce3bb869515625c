// nvidia-smi -q -x: the elements of the real tool in its order, as far as the state folder has something to say about them.
// Two layouts: that of nvsmi_device_v12.dtd (drivers 535 to 570) and that of nvsmi_device_v13.dtd (580 and later).
#include <string.h>
#include <time.h>

#include "smi.h"

// "tag=field" a reading, "tag:text" fixed text, "tag{" and "}" an element with others in it, "@name" what code below prints.
// A line for one layout only begins with its number.
static const char *const layout[] = {
    "product_name=name", "product_brand:NVIDIA", "product_architecture:N/A", "display_mode:Disabled", "display_active:Disabled",
    "persistence_mode=persistence_mode", "addressing_mode:None",
    "mig_mode{", "current_mig=mig.mode.current", "pending_mig=mig.mode.pending", "}",
    "@migs", "accounting_mode:Disabled", "serial=serial", "uuid=uuid", "minor_number=xml.minor", "vbios_version=vbios_version",
    "gpu_virtualization_mode{", "virtualization_mode:None", "host_vgpu_mode:N/A", "}",
    "12gpu_reset_status{", "12reset_required:No", "12drain_and_reset_recommended:No", "12}",
    "13gpu_recovery_action=gpu_recovery_action",
    "pci{", "pci_bus=xml.bus", "pci_device=xml.device", "pci_domain=xml.domain", "pci_device_id=xml.device_id", "pci_bus_id=pci.bus_id", "}",
    "fan_speed=fan.speed", "performance_state=pstate", "@events",
    "fb_memory_usage{", "total=memory.total", "reserved=memory.reserved", "used=memory.used", "free=memory.free", "}",
    "compute_mode=compute_mode",
    "utilization{", "gpu_util=utilization.gpu", "memory_util=utilization.memory", "encoder_util:N/A", "decoder_util:N/A", "}",
    "ecc_mode{", "current_ecc=ecc.mode.current", "pending_ecc=ecc.mode.pending", "}",
    "ecc_errors{", "volatile{",
    "12sram_correctable=ecc.errors.corrected.volatile.total", "12sram_uncorrectable=ecc.errors.uncorrected.volatile.total",
    "13sram_correctable=ecc.errors.corrected.volatile.total", "13sram_uncorrectable_parity=ecc.errors.uncorrected.volatile.total",
    "@sram_secded", "@dram", "}", "aggregate{",
    "12sram_correctable=ecc.errors.corrected.aggregate.total", "12sram_uncorrectable=ecc.errors.uncorrected.aggregate.total",
    "13sram_correctable=ecc.errors.corrected.aggregate.total", "13sram_uncorrectable_parity=ecc.errors.uncorrected.aggregate.total",
    "@sram_secded", "@dram", "}", "}",
    "retired_pages{", "multiple_single_bit_retirement{", "retired_count=retired_pages.single_bit_ecc.count", "}",
    "double_bit_retirement{", "retired_count=retired_pages.double_bit.count", "}",
    "pending_blacklist=retired_pages.pending", "pending_retirement=retired_pages.pending", "}",
    "@remapped",
    "temperature{", "gpu_temp=xml.temperature", "gpu_temp_tlimit=xml.tlimit", "@thresholds", "memory_temp=xml.memory_temp", "}",
    "gpu_power_readings{", "power_state=pstate", "12power_draw=power.draw", "13average_power_draw=power.draw", "13instant_power_draw=power.draw",
    "current_power_limit=power.limit", "requested_power_limit=power.limit", "}",
    "clocks{", "graphics_clock=clocks.gr", "sm_clock=clocks.sm", "mem_clock=clocks.mem", "}",
    "max_clocks{", "graphics_clock=clocks.max.gr", "sm_clock=clocks.max.sm", "mem_clock=clocks.max.mem", "}",
    "@processes", "accounted_processes{", "}",
};

static int depth;

static void escaped(const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '&': fputs("&amp;", stdout); break;
        case '<': fputs("&lt;", stdout); break;
        case '>': fputs("&gt;", stdout); break;
        default: putchar(*text);
        }
    }
}

static void element(const char *tag, const char *text)
{
    printf("%.*s<%s>", depth, "\t\t\t\t\t\t\t\t", tag);
    escaped(text);
    printf("</%s>\n", tag);
}

static void open_element(const char *tag)
{
    printf("%.*s<%s>\n", depth++, "\t\t\t\t\t\t\t\t", tag);
}

static void close_element(const char *tag)
{
    printf("%.*s</%s>\n", --depth, "\t\t\t\t\t\t\t\t", tag);
}

static void reading(const char *tag, const char *field, nvmlDevice_t d)
{
    char value[TEXT], text[2 * TEXT];
    const char *unit = "";
    value_known(field, &unit);
    nvmlReturn_t result = value_read(field, d, value);
    if (result == NVML_SUCCESS)
        snprintf(text, sizeof text, "%s%s%s", value, unit[0] != '\0' ? " " : "", unit);
    else
        snprintf(text, sizeof text, "%s", result == NVML_ERROR_NOT_SUPPORTED ? "N/A" : nvmlErrorString(result));
    element(tag, text);
}

static void number_element(const char *tag, unsigned int value, bool known)
{
    char text[32] = "N/A";
    if (known)
        snprintf(text, sizeof text, "%u", value);
    element(tag, text);
}

// The real tool gives MIG devices no UUID here: it stands in `nvidia-smi -L` alone.
static void mig_device(nvmlDevice_t mig, unsigned int index)
{
    unsigned int gi = 0, ci = 0;
    nvmlDeviceAttributes_t a = {0};
    nvmlDeviceGetGpuInstanceId(mig, &gi);
    nvmlDeviceGetComputeInstanceId(mig, &ci);
    nvmlDeviceGetAttributes_v2(mig, &a);
    open_element("mig_device");
    number_element("index", index, true);
    number_element("gpu_instance_id", gi, true);
    number_element("compute_instance_id", ci, true);
    open_element("device_attributes");
    open_element("shared");
    number_element("multiprocessor_count", a.multiprocessorCount, true);
    close_element("shared");
    close_element("device_attributes");
    open_element("fb_memory_usage");
    reading("total", "memory.total", mig);
    reading("reserved", "memory.reserved", mig);
    reading("used", "memory.used", mig);
    reading("free", "memory.free", mig);
    close_element("fb_memory_usage");
    close_element("mig_device");
}

static void migs(nvmlDevice_t d)
{
    unsigned int count = 0, shown = 0;
    nvmlDevice_t mig;
    nvmlDeviceGetMaxMigDeviceCount(d, &count);
    open_element("mig_devices");
    for (unsigned int i = 0; i < count; i++)
        if (nvmlDeviceGetMigDeviceHandleByIndex(d, i, &mig) == NVML_SUCCESS) {
            mig_device(mig, i);
            shown++;
        }
    if (shown == 0)
        printf("\t\t\tNone\n");
    close_element("mig_devices");
}

static void events(nvmlDevice_t d)
{
    static const struct {
        unsigned long long bit;
        const char *tag;
    } reasons[] = {
        {nvmlClocksEventReasonGpuIdle, "gpu_idle"},
        {nvmlClocksEventReasonApplicationsClocksSetting, "applications_clocks_setting"},
        {nvmlClocksEventReasonSwPowerCap, "sw_power_cap"},
        {nvmlClocksThrottleReasonHwSlowdown, "hw_slowdown"},
        {nvmlClocksThrottleReasonHwThermalSlowdown, "hw_thermal_slowdown"},
        {nvmlClocksThrottleReasonHwPowerBrakeSlowdown, "hw_power_brake_slowdown"},
        {nvmlClocksEventReasonSyncBoost, "sync_boost"},
        {nvmlClocksEventReasonSwThermalSlowdown, "sw_thermal_slowdown"},
        {nvmlClocksEventReasonDisplayClockSetting, "display_clocks_setting"},
    };
    unsigned long long mask = 0;
    if (nvmlDeviceGetCurrentClocksEventReasons(d, &mask) != NVML_SUCCESS) {
        element("clocks_event_reasons", "N/A");
        return;
    }
    open_element("clocks_event_reasons");
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        char tag[TEXT];
        snprintf(tag, sizeof tag, "clocks_event_reason_%s", reasons[i].tag);
        element(tag, (mask & reasons[i].bit) != 0 ? "Active" : "Not Active");
    }
    close_element("clocks_event_reasons");
}

static void remapped(nvmlDevice_t d)
{
    char text[TEXT];
    if (value_read("xml.remapped_corr", d, text) == NVML_ERROR_NOT_SUPPORTED) {
        element("remapped_rows", "N/A");
        return;
    }
    open_element("remapped_rows");
    reading("remapped_row_corr", "xml.remapped_corr", d);
    reading("remapped_row_unc", "xml.remapped_unc", d);
    reading("remapped_row_pending", "xml.remapped_pending", d);
    reading("remapped_row_failure", "xml.remapped_failure", d);
    close_element("remapped_rows");
}

// Devices that report a margin have thresholds relative to it, under other names.
static void thresholds(nvmlDevice_t d)
{
    char text[TEXT];
    bool relative = value_read("xml.tlimit", d, text) == NVML_SUCCESS;
    reading(relative ? "gpu_temp_max_tlimit_threshold" : "gpu_temp_max_threshold", relative ? "xml.tlimit_shutdown" : "xml.shutdown", d);
    reading(relative ? "gpu_temp_slow_tlimit_threshold" : "gpu_temp_slow_threshold", relative ? "xml.tlimit_slowdown" : "xml.slowdown", d);
    reading(relative ? "gpu_temp_max_gpu_tlimit_threshold" : "gpu_temp_max_gpu_threshold", relative ? "xml.tlimit_gpu_max" : "xml.gpu_max", d);
}

// The folder has one count of each kind; it is shown as SRAM's, so that sums over a block come out right.
static void no_more_ecc(nvmlDevice_t d, const char *const *tags)
{
    char text[TEXT];
    bool on = value_read("ecc.errors.corrected.volatile.total", d, text) == NVML_SUCCESS;
    for (; *tags != NULL; tags++)
        element(*tags, on ? "0" : "N/A");
}

static void processes(nvmlDevice_t d)
{
    running_t list[MAX_PROCESSES];
    char text[TEXT];
    int n = running(d, list);
    open_element("processes");
    for (int i = 0; i < n; i++) {
        nvmlProcessInfo_t *p = &list[i].info;
        open_element("process_info");
        number_element("gpu_instance_id", p->gpuInstanceId, p->gpuInstanceId != 0xFFFFFFFF);
        number_element("compute_instance_id", p->computeInstanceId, p->computeInstanceId != 0xFFFFFFFF);
        number_element("pid", p->pid, true);
        element("type", list[i].type);
        process_name(p->pid, true, text);
        element("process_name", text);
        snprintf(text, sizeof text, "%llu MiB", p->usedGpuMemory >> 20);
        element("used_memory", p->usedGpuMemory == ~0ULL ? "N/A" : text);
        close_element("process_info");
    }
    close_element("processes");
}

static void special(const char *name, nvmlDevice_t d, const char *version)
{
    static const char *const secded[] = {"sram_uncorrectable_secded", NULL}, *const dram[] = {"dram_correctable", "dram_uncorrectable", NULL};
    if (strcmp(name, "migs") == 0)
        migs(d);
    else if (strcmp(name, "events") == 0)
        events(d);
    else if (strcmp(name, "remapped") == 0)
        remapped(d);
    else if (strcmp(name, "thresholds") == 0)
        thresholds(d);
    else if (strcmp(name, "processes") == 0)
        processes(d);
    else if (strcmp(name, "dram") == 0)
        no_more_ecc(d, dram);
    else if (strcmp(name, "sram_secded") == 0 && strcmp(version, "13") == 0)
        no_more_ecc(d, secded);
}

static void device(nvmlDevice_t d, const char *version)
{
    char open[8][64], tag[64], bus[TEXT];
    int nested = 0;
    value_read("pci.bus_id", d, bus);
    printf("\t<gpu id=\"%s\">\n", bus);
    depth = 2;
    for (size_t i = 0; i < sizeof layout / sizeof layout[0]; i++) {
        const char *line = layout[i];
        if (line[0] == '1') {
            if (strncmp(line, version, 2) != 0)
                continue;
            line += 2;
        }
        size_t length = strcspn(line, "=:{");
        snprintf(tag, sizeof tag, "%.*s", (int)length, line);
        if (line[0] == '@')
            special(line + 1, d, version);
        else if (line[0] == '}')
            close_element(open[--nested]);
        else if (line[length] == '{') {
            strcpy(open[nested++], tag);
            open_element(tag);
        } else if (line[length] == '=')
            reading(tag, line + length + 1, d);
        else
            element(tag, line + length + 1);
    }
    printf("\t</gpu>\n");
}

void xml_print(const picked_t *devices, int count)
{
    char version[TEXT] = "12", text[TEXT] = "";
    unsigned int attached = 0;
    int cuda = 0;
    time_t now = time(NULL);
    state_text(version, "smi_format");
    nvmlDeviceGetCount_v2(&attached);
    printf("<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v%s.dtd\">\n<nvidia_smi_log>\n", version);
    depth = 1;
    strftime(text, sizeof text, "%a %b %e %H:%M:%S %Y", localtime(&now));
    element("timestamp", text);
    value_read("driver_version", NULL, text);
    element("driver_version", text);
    nvmlSystemGetCudaDriverVersion_v2(&cuda);
    snprintf(text, sizeof text, "%d.%d", cuda / 1000, cuda % 1000 / 10);
    element("cuda_version", cuda != 0 ? text : "N/A");
    number_element("attached_gpus", attached, true);
    for (int i = 0; i < count; i++)
        if (devices[i].handle != NULL)
            device(devices[i].handle, version);
    printf("</nvidia_smi_log>\n");
}
