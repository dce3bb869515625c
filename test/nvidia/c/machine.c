#include "machine.h"
#include "preload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

struct gpu gpus[MAX_GPUS];
int gpu_count;
const char *driver_version = "";

static bool no_nodes;

void forget_machine(void)
{
    memset(gpus, 0, sizeof gpus);
    gpu_count = 0;
    no_nodes = false;
}

const char *const places[] = {"/proc/driver/nvidia", "/proc/devices", "/proc/modules", "/sys/module/nvidia", "/sys/bus/pci/devices", "/sys/devices/pci", NULL};

// Major numbers of the device files; /proc/devices of the machine says the same.
enum { MAJOR_DEVICE = 195, MAJOR_UVM = 235, MAJOR_CAPABILITY = 237 };

struct node node_at(const char *path)
{
    int minor;
    if (strncmp(path, "/dev/nvidia", 11) != 0)
        return (struct node){NO_DEVICE, 0};
    const char *rest = path + 11;
    if (no_nodes)
        return (struct node){ABSENT, 0};
    if (strcmp(rest, "ctl") == 0)
        return (struct node){CONTROL, 255};
    if (strcmp(rest, "-uvm") == 0)
        return (struct node){UVM, 0};
    if (strcmp(rest, "-uvm-tools") == 0)
        return (struct node){UVM, 1};
    if (sscanf(rest, "-caps/nvidia-cap%d", &minor) == 1)
        return (struct node){CAPABILITY, minor};
    if (sscanf(rest, "%d", &minor) == 1 && minor >= 0 && minor < gpu_count)
        return (struct node){DEVICE, minor};
    return (struct node){ABSENT, 0};
}

int refusal(struct node node) { return node.kind == ABSENT ? ENOENT : node.kind == DEVICE ? (int)gpus[node.minor].denied : 0; }

void describe(struct node node, struct stat *to)
{
    to->st_mode = S_IFCHR | (node.kind == CAPABILITY ? 0444 : 0666);
    to->st_rdev = makedev(node.kind == UVM ? MAJOR_UVM : node.kind == CAPABILITY ? MAJOR_CAPABILITY : MAJOR_DEVICE, (unsigned)node.minor);
}

// read_uuid reads the hexadecimal digits between the hyphens.
static void read_uuid(uint8_t uuid[16], char text[MAX_TEXT], const char *value)
{
    int n = 0;
    snprintf(text, MAX_TEXT, "%s", value);
    for (const char *c = text; *c != '\0' && n < 16; c++) {
        unsigned byte;
        if (*c == '-')
            continue;
        if (sscanf(c, "%2x", &byte) != 1)
            broken(value);
        uuid[n++] = (uint8_t)byte;
        c++;
    }
}

static const struct {
    const char *key, *format;
    size_t place;
} numbers[] = {
    {"device", "%x", offsetof(struct gpu, device)},
    {"subsystem", "%x", offsetof(struct gpu, subsystem)},
    {"used", "%u", offsetof(struct gpu, used)},
    {"multiprocessors", "%u", offsetof(struct gpu, multiprocessors)},
    {"celsius", "%u", offsetof(struct gpu, celsius)},
    {"percent", "%u", offsetof(struct gpu, percent)},
    {"memory_percent", "%u", offsetof(struct gpu, memory_percent)},
    {"milliwatts", "%u", offsetof(struct gpu, milliwatts)},
    {"performance_state", "%u", offsetof(struct gpu, performance_state)},
    {"compute_mode", "%u", offsetof(struct gpu, compute_mode)},
    {"persistent", "%u", offsetof(struct gpu, persistent)},
    {"denied", "%u", offsetof(struct gpu, denied)},
    {"status", "%x", offsetof(struct gpu, status)},
};

static void read_slice(struct gpu *g, const char *value)
{
    struct slice *s = &g->slices[g->slice_count];
    unsigned mib;
    char uuid[MAX_TEXT];
    if (g->slice_count == MAX_SLICES ||
        sscanf(value, "%u %u %u %u %u %63s", &s->gpu_instance, &s->compute_instance, &s->multiprocessors, &s->gpcs, &mib, uuid) != 6)
        broken(value);
    s->memory = (uint64_t)mib << 20;
    read_uuid(s->uuid, s->text, uuid);
    g->slice_count++;
    g->mig = MIG_ON;
}

// read_process reads one that is new, or one that is known by its number.
static void read_process(struct gpu *g, const char *value)
{
    struct process p = {.gpu_instance = (uint32_t)ANY, .compute_instance = (uint32_t)ANY};
    if (sscanf(value, "%u %u %c %u %u", &p.pid, &p.mib, &p.kind, &p.gpu_instance, &p.compute_instance) < 3)
        broken(value);
    int i = 0;
    while (i < g->process_count && g->processes[i].pid != p.pid)
        i++;
    if (i == MAX_PROCESSES)
        broken(value);
    g->processes[i] = p;
    if (i == g->process_count)
        g->process_count++;
}

// read_line reads one "key value" line; "gpu" begins another GPU.
void read_line(char *line)
{
    char *value = line;
    const char *key = strsep(&value, " ");
    if (value == NULL)
        broken(line);
    if (strcmp(key, "driver") == 0) {
        driver_version = strdup(value);
        return;
    }
    if (strcmp(key, "nodes") == 0) { // none: as in a container that was given none
        no_nodes = true;
        return;
    }
    if (strcmp(key, "gpu") == 0) {
        struct gpu *g = &gpus[gpu_count];
        if (gpu_count++ == MAX_GPUS || sscanf(value, "0000:%x:00.0", &g->bus) != 1)
            broken(value);
        g->id = g->bus << 8;
        return;
    }
    if (gpu_count == 0)
        broken(key);
    struct gpu *g = &gpus[gpu_count - 1];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(key, numbers[i].key) == 0) {
            if (sscanf(value, numbers[i].format, (uint32_t *)((char *)g + numbers[i].place)) != 1)
                broken(value);
            return;
        }
    if (strcmp(key, "name") == 0)
        snprintf(g->name, sizeof g->name, "%s", value);
    else if (strcmp(key, "uuid") == 0)
        read_uuid(g->uuid, g->text, value);
    else if (strcmp(key, "memory") == 0)
        g->memory = strtoull(value, NULL, 10) << 20;
    else if (strcmp(key, "architecture") == 0)
        g->architecture = architecture_named(value);
    else if (strcmp(key, "mig") == 0)
        g->mig = strcmp(value, "on") == 0 ? MIG_ON : strcmp(value, "off") == 0 ? MIG_OFF : NO_MIG;
    else if (strcmp(key, "slice") == 0)
        read_slice(g, value);
    else if (strcmp(key, "process") == 0)
        read_process(g, value);
    else
        broken(key);
    if (strcmp(key, "architecture") == 0 && g->architecture == NULL)
        broken(value);
}
