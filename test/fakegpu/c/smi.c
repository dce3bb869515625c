// A nvidia-smi over the fake library, which is linked in: it runs where libnvidia-ml.so.1 was taken away.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "smi.h"

typedef struct {
    const char *devices, *gpu_fields, *process_fields, *format;
    bool list, query, xml;
} options_t;

// ---- processes

static void add_processes(nvmlReturn_t (*call)(nvmlDevice_t, unsigned int *, nvmlProcessInfo_t *), const char *type, nvmlDevice_t d, running_t *out, int *n)
{
    static nvmlProcessInfo_t infos[MAX_PROCESSES];
    unsigned int count = MAX_PROCESSES;
    if (call(d, &count, infos) != NVML_SUCCESS)
        return;
    for (unsigned int i = 0; i < count; i++) {
        int j = 0;
        while (j < *n && out[j].info.pid != infos[i].pid)
            j++;
        if (j < *n) {
            strcpy(out[j].type, out[j].type[0] == 'M' || type[0] == 'M' ? "M+C" : "C+G");
        } else if (*n < MAX_PROCESSES) {
            out[*n].info = infos[i];
            snprintf(out[(*n)++].type, sizeof out[0].type, "%s", type);
        }
    }
}

int running(nvmlDevice_t d, running_t *out)
{
    int n = 0;
    add_processes(nvmlDeviceGetComputeRunningProcesses_v3, "C", d, out, &n);
    add_processes(nvmlDeviceGetMPSComputeRunningProcesses_v3, "M+C", d, out, &n);
    add_processes(nvmlDeviceGetGraphicsRunningProcesses_v3, "G", d, out, &n);
    return n;
}

void process_name(unsigned int pid, bool arguments, char out[TEXT])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *f = fopen(path, "re");
    size_t n = f != NULL ? fread(out, 1, TEXT - 1, f) : 0;
    if (f != NULL)
        fclose(f);
    while (n > 0 && out[n - 1] == '\0')
        n--;
    out[n] = '\0';
    for (size_t i = 0; arguments && i < n; i++)
        if (out[i] == '\0')
            out[i] = ' ';
    if (n == 0)
        strcpy(out, "[Not Found]");
}

// ---- devices

static bool wanted(const char *list, unsigned int index, nvmlDevice_t d)
{
    char copy[ARGS], uuid[TEXT] = "", bus[TEXT] = "", number[16], *rest;
    if (list == NULL)
        return true;
    if (d != NULL) {
        value_read("uuid", d, uuid);
        value_read("pci.bus_id", d, bus);
    }
    snprintf(number, sizeof number, "%u", index);
    snprintf(copy, sizeof copy, "%s", list);
    for (char *w = strtok_r(copy, ",", &rest); w != NULL; w = strtok_r(NULL, ",", &rest)) {
        size_t skip = strlen(bus) > strlen(w) ? strlen(bus) - strlen(w) : 0;
        bool address = strchr(w, ':') != NULL && strcasecmp(bus + skip, w) == 0;
        if (strcmp(w, number) == 0 || strcmp(w, uuid) == 0 || address)
            return true;
    }
    return false;
}

static int pick(const char *list, picked_t *out)
{
    unsigned int count = 0;
    int n = 0;
    nvmlDeviceGetCount_v2(&count);
    for (unsigned int i = 0; i < count; i++) {
        picked_t p = {.index = i};
        p.why = nvmlDeviceGetHandleByIndex_v2(i, &p.handle);
        if (p.why != NVML_SUCCESS)
            p.handle = NULL;
        if (wanted(list, i, p.handle))
            out[n++] = p;
    }
    return n;
}

// The words of current drivers; nothing else of a device without a handle is printed.
static bool without_handle(const picked_t *p, FILE *where)
{
    char pci[TEXT] = "";
    if (p->handle != NULL)
        return false;
    state_text(pci, "gpus/%u/pci", p->index);
    fprintf(where, "Unable to determine the device handle for GPU%u: %s: %s%s\n", p->index, pci, nvmlErrorString(p->why),
            p->why == NVML_ERROR_GPU_IS_LOST ? ".  Reboot the system to recover this GPU" : "");
    return true;
}

// ---- what is printed

static void list_devices(const picked_t *devices, int count)
{
    char name[TEXT], uuid[TEXT];
    for (int i = 0; i < count; i++) {
        unsigned int migs = 0;
        nvmlDevice_t mig;
        if (without_handle(&devices[i], stdout))
            continue;
        value_read("name", devices[i].handle, name);
        value_read("uuid", devices[i].handle, uuid);
        printf("GPU %u: %s (UUID: %s)\n", devices[i].index, name, uuid);
        nvmlDeviceGetMaxMigDeviceCount(devices[i].handle, &migs);
        for (unsigned int j = 0; j < migs; j++) {
            if (nvmlDeviceGetMigDeviceHandleByIndex(devices[i].handle, j, &mig) != NVML_SUCCESS)
                continue;
            value_read("name", mig, name);
            value_read("uuid", mig, uuid);
            const char *profile = strstr(name, " MIG ");
            printf("  MIG %-15s Device %2u: (UUID: %s)\n", profile != NULL ? profile + 5 : name, j, uuid);
        }
    }
}

static bool has_option(const options_t *o, const char *word)
{
    return o->format != NULL && strstr(o->format, word) != NULL;
}

typedef bool (*unit_of)(const char *field, const char **unit);

static bool process_unit(const char *field, const char **unit)
{
    static const char *const plain[] = {"timestamp", "gpu_name", "gpu_bus_id", "gpu_serial", "gpu_uuid", "pid", "process_name", "name"};
    bool memory = strcmp(field, "used_memory") == 0 || strcmp(field, "used_gpu_memory") == 0;
    *unit = memory ? "MiB" : "";
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (strcmp(field, plain[i]) == 0)
            return true;
    return memory;
}

// Splits "a, b,c" into words and prints the header. Gives the number of words, -1 when a field does not exist.
static int header(const options_t *o, const char *fields, char words[][TEXT], unit_of known)
{
    char line[ARGS * 2] = "", *rest, copy[ARGS];
    const char *unit;
    int n = 0;
    snprintf(copy, sizeof copy, "%s", fields);
    for (char *w = strtok_r(copy, ", ", &rest); w != NULL && n < 64; w = strtok_r(NULL, ", ", &rest)) {
        if (!known(w, &unit) || strncmp(w, "xml.", 4) == 0) {
            printf("Field \"%s\" is not a valid field to query.\n\n", w);
            return -1;
        }
        size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, unit[0] != '\0' ? "%s%s [%s]" : "%s%s", n > 0 ? ", " : "", w, unit);
        snprintf(words[n++], TEXT, "%s", w);
    }
    if (!has_option(o, "noheader"))
        printf("%s\n", line);
    return n;
}

static void cell(const options_t *o, int column, nvmlReturn_t result, const char *value, const char *unit)
{
    printf("%s", column > 0 ? ", " : "");
    if (result == NVML_ERROR_NOT_SUPPORTED)
        printf("[N/A]");
    else if (result != NVML_SUCCESS)
        printf("[%s]", nvmlErrorString(result));
    else
        printf(unit[0] != '\0' && !has_option(o, "nounits") ? "%s %s" : "%s", value, unit);
}

static int query_gpu(const options_t *o, const picked_t *devices, int count)
{
    static char words[64][TEXT];
    char value[TEXT];
    const char *unit = "";
    int n = header(o, o->gpu_fields, words, value_known);
    if (n < 0)
        return 2;
    for (int i = 0; i < count; i++) {
        if (without_handle(&devices[i], stdout))
            continue;
        for (int k = 0; k < n; k++) {
            value_known(words[k], &unit);
            nvmlReturn_t result = value_read(words[k], devices[i].handle, value);
            cell(o, k, result, value, unit);
        }
        printf("\n");
    }
    return 0;
}

static void process_cell(const options_t *o, int column, const char *field, nvmlDevice_t d, const nvmlProcessInfo_t *p)
{
    char value[TEXT] = "";
    const char *unit;
    nvmlReturn_t result = NVML_SUCCESS;
    process_unit(field, &unit);
    if (strcmp(field, "pid") == 0)
        snprintf(value, sizeof value, "%u", p->pid);
    else if (strcmp(field, "process_name") == 0 || strcmp(field, "name") == 0)
        process_name(p->pid, false, value);
    else if (unit[0] != '\0' && p->usedGpuMemory == ~0ULL)
        result = NVML_ERROR_NOT_SUPPORTED;
    else if (unit[0] != '\0')
        snprintf(value, sizeof value, "%llu", p->usedGpuMemory >> 20);
    else
        result = value_read(field, d, value);
    cell(o, column, result, value, unit);
}

static int query_processes(const options_t *o, const picked_t *devices, int count)
{
    static char words[64][TEXT];
    static running_t list[MAX_PROCESSES];
    int n = header(o, o->process_fields, words, process_unit);
    if (n < 0)
        return 2;
    for (int i = 0; i < count; i++) {
        if (without_handle(&devices[i], stdout))
            continue;
        int m = running(devices[i].handle, list);
        for (int j = 0; j < m; j++) {
            if (list[j].type[0] == 'G')
                continue;
            for (int k = 0; k < n; k++)
                process_cell(o, k, words[k], devices[i].handle, &list[j].info);
            printf("\n");
        }
    }
    return 0;
}

// ---- options

static const char *value_of(const char *arg, const char *name)
{
    size_t n = strlen(name);
    return strncmp(arg, name, n) == 0 && arg[n] == '=' ? arg + n + 1 : NULL;
}

static bool parse(int argc, char **argv, options_t *o)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v;
        if (strcmp(a, "-L") == 0 || strcmp(a, "--list-gpus") == 0)
            o->list = true;
        else if (strcmp(a, "-q") == 0 || strcmp(a, "--query") == 0)
            o->query = true;
        else if (strcmp(a, "-x") == 0 || strcmp(a, "--xml-format") == 0)
            o->xml = true;
        else if (strcmp(a, "-i") == 0 && i + 1 < argc)
            o->devices = argv[++i];
        else if ((v = value_of(a, "-i")) != NULL || (v = value_of(a, "--id")) != NULL)
            o->devices = v;
        else if ((v = value_of(a, "--query-gpu")) != NULL)
            o->gpu_fields = v;
        else if ((v = value_of(a, "--query-compute-apps")) != NULL)
            o->process_fields = v;
        else if ((v = value_of(a, "--format")) != NULL)
            o->format = v;
        else {
            printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n");
            return false;
        }
    }
    return true;
}

static int start(void)
{
    char driver[TEXT] = "";
    nvmlReturn_t result = nvmlInit_v2();
    if (result == NVML_ERROR_DRIVER_NOT_LOADED) {
        printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n\n");
    } else if (result != NVML_SUCCESS) {
        printf("Failed to initialize NVML: %s\n", nvmlErrorString(result));
        if (result == NVML_ERROR_LIB_RM_VERSION_MISMATCH && state_text(driver, "driver"))
            printf("NVML library version: %s\n", driver);
    }
    return (int)result;
}

int main(int argc, char **argv)
{
    options_t o = {0};
    picked_t devices[MAX_GPUS];
    if (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) { // needs no driver
        printf("NVIDIA System Management Interface -- a fake one, for tests\n\nnvidia-smi -L | -q -x | --query-gpu=... | --query-compute-apps=... [-i GPU]\n");
        return 0;
    }
    if (!parse(argc, argv, &o))
        return 2;
    int code = start();
    if (code != 0)
        return code;
    int count = pick(o.devices, devices);
    if (count == 0) {
        printf(o.list ? "No devices found.\n" : "No devices were found\n");
        return NVML_ERROR_NOT_FOUND;
    }
    if (o.list)
        list_devices(devices, count);
    else if (o.gpu_fields != NULL && has_option(&o, "csv"))
        code = query_gpu(&o, devices, count);
    else if (o.process_fields != NULL && has_option(&o, "csv"))
        code = query_processes(&o, devices, count);
    else if (o.query && o.xml) {
        // In the middle of the document the words would break it.
        for (int i = 0; i < count; i++)
            without_handle(&devices[i], stderr);
        xml_print(devices, count);
    } else {
        printf("The fake nvidia-smi knows -L, -q -x, --query-gpu=… and --query-compute-apps=… with --format=csv, and -i.\n");
        return 2;
    }
    for (int i = 0; code == 0 && i < count; i++)
        if (devices[i].handle == NULL)
            code = (int)devices[i].why;
    nvmlShutdown();
    return code;
}
