// No function here or beside it reads numbers with those of libc: built with a new glibc they need a newer one than the
// libraries' own, with which this is loaded.
#include "machine.h"
#include "preload.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/sysmacros.h>

struct gpu gpus[MAX_GPUS];
int gpu_count;

const char *const places[] = {"/sys/devices/virtual/kfd", "/sys/class/kfd", "/sys/class/drm", "/sys/dev/char/226:", "/sys/module/amdgpu", "/sys/bus/pci/", "/sys/devices/pci", "/proc/modules", NULL};

// Major numbers; that of KFD is given out as drivers are loaded.
enum { MAJOR_KFD = 510, MAJOR_RENDER = 226 };

static bool read_number(const char *text, unsigned base, uint64_t *number)
{
    *number = 0;
    for (const char *c = text; *c != '\0'; c++) {
        unsigned digit = *c >= '0' && *c <= '9' ? (unsigned)(*c - '0') : *c >= 'a' && *c <= 'f' ? (unsigned)(*c - 'a' + 10) : base;
        if (digit >= base)
            return false;
        *number = *number * base + digit;
    }
    return *text != '\0';
}

void forget_machine(void) { gpu_count = 0; }

// read_line reads "key value"; "gpu" begins another GPU. Keys that only the files of /sys need are for sys.go.
void read_line(char *line)
{
    char *value = line;
    const char *key = strsep(&value, " ");
    uint64_t number;
    if (value == NULL)
        broken(line);
    if (strcmp(key, "gpu") == 0) {
        if (gpu_count == MAX_GPUS)
            broken(value);
        gpus[gpu_count] = (struct gpu){.id = 10000 + 1000 * (uint32_t)gpu_count};
        gpu_count++;
        return;
    }
    if (gpu_count == 0)
        broken(key);
    struct gpu *g = &gpus[gpu_count - 1];
    if (strcmp(key, "minor") == 0 && read_number(value, 10, &number))
        g->minor = (int)number;
    else if (strcmp(key, "device") == 0 && read_number(value, 16, &number))
        g->device = (uint32_t)number;
    else if (strcmp(key, "memory") == 0 && read_number(value, 10, &number))
        g->memory = number << 20;
    else if (strcmp(key, "denied") == 0 && read_number(value, 10, &number))
        g->denied = (int)number;
}

static const struct gpu *gpu_at(int minor)
{
    for (int i = 0; i < gpu_count; i++)
        if (gpus[i].minor == minor)
            return &gpus[i];
    return NULL;
}

// node_at knows no /dev/dri/cardN: compute does not need it.
struct node node_at(const char *path)
{
    uint64_t minor;
    if (strcmp(path, "/dev/kfd") == 0)
        return (struct node){KFD, 0};
    if (strncmp(path, "/dev/dri/", 9) != 0)
        return (struct node){NO_DEVICE, 0};
    if (strncmp(path + 9, "renderD", 7) == 0 && read_number(path + 16, 10, &minor) && gpu_at((int)minor) != NULL)
        return (struct node){RENDER, (int)minor};
    return (struct node){ABSENT, 0};
}

int refusal(struct node node) { return node.kind == ABSENT ? ENOENT : node.kind == RENDER ? gpu_at(node.minor)->denied : 0; }

void describe(struct node node, struct stat *to)
{
    to->st_mode = S_IFCHR | 0666;
    to->st_rdev = node.kind == KFD ? makedev(MAJOR_KFD, 0) : makedev(MAJOR_RENDER, (unsigned)node.minor);
}

int answer_ioctl(struct node node, unsigned long request, void *argument)
{
    unsigned number = request & 0xff;
    errno = node.kind == KFD ? answer_kfd(number, argument) : answer_render(gpu_at(node.minor), number, argument);
    return errno == 0 ? 0 : -1;
}
