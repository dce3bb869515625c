#include "machine.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct gpu gpus[MAX_GPUS];
int gpu_count;
const char *driver_version = "";
const char *root = "";

static int log_file = -1;

void say(const char *format, ...)
{
    char line[4096];
    va_list arguments;
    if (log_file < 0)
        return;
    va_start(arguments, format);
    int n = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (n > (int)sizeof line)
        n = sizeof line;
    if (syscall(SYS_write, log_file, line, n) < 0)
        log_file = -1;
}

static void broken(const char *line)
{
    fprintf(stderr, "cannot read the invented machine: %s\n", line);
    _exit(125);
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

static void read_process(struct gpu *g, const char *value)
{
    struct process *p = &g->processes[g->process_count];
    p->gpu_instance = p->compute_instance = (uint32_t)ANY;
    if (g->process_count == MAX_PROCESSES || sscanf(value, "%u %u %c %u %u", &p->pid, &p->mib, &p->kind, &p->gpu_instance, &p->compute_instance) < 3)
        broken(value);
    g->process_count++;
}

// read_line reads one "key value" line; "gpu" begins another GPU.
static void read_line(char *line)
{
    char *value = line;
    const char *key = strsep(&value, " ");
    if (*key == '#' || *key == '\0')
        return;
    if (value == NULL)
        broken(line);
    if (strcmp(key, "driver") == 0) {
        driver_version = strdup(value);
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

// The file is read before the libraries' own constructors, without the functions that files.c replaces.
__attribute__((constructor(101))) static void load(void)
{
    static char text[32768];
    const char *path = getenv("NVIDIA_LAB"), *log = getenv("NVIDIA_LAB_LOG");
    if (path == NULL)
        return;
    static char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    char *last = strrchr(folder, '/');
    if (last != NULL)
        *last = '\0';
    root = folder;
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = file < 0 ? -1 : syscall(SYS_read, file, text, sizeof text - 1);
    if (n < 0)
        broken(path);
    syscall(SYS_close, file);
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        read_line(line);
    if (log != NULL) {
        int opened = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        log_file = (int)syscall(SYS_fcntl, opened, F_DUPFD_CLOEXEC, 900); // out of the way of what the program numbers itself
        syscall(SYS_close, opened);
    }
}
