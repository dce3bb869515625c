// ask RUNTIME answers a list of questions with AMD's libraries: RUNTIME is hsa, hip or opencl, and each line has
// ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES and GPU_DEVICE_ORDINAL, "-" for one that is not set, else "="
// and the value with %XX for what could be taken for a separator. It prints the library's code, or "ended" where it ended the
// program (SIGABRT), and for each device the PCI bus and the memory (MiB), which tells apart partitions. Each question has
// a process of its own, as the variables are read once. As "ask RUNTIME own" it prints what it is shown itself.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const variables[] = {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"};

static void *library;

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c - 'A' + 10; }

static void set(const char *name, char *value)
{
    char *to = value, *from = value;
    unsetenv(name);
    if (*from++ != '=')
        return;
    while (*from != '\0')
        if (*from == '%') {
            *to++ = (char)(digit(from[1]) << 4 | digit(from[2]));
            from += 3;
        } else
            *to++ = *from++;
    *to = '\0';
    setenv(name, value, 1);
}

// Agents and pools of HSA are handles. The numbers of what can be asked are those of hsa.h and hsa_ext_amd.h.
typedef struct {
    uint64_t handle;
} agent, pool;
enum { AGENT_INFO_DEVICE = 17, AGENT_INFO_BDFID = 0xa006, POOL_INFO_SIZE = 2 };
enum { AGENT_IS_GPU = 1 };
static int (*agent_info)(agent, int, void *), (*pool_info)(pool, int, void *), (*iterate_pools)(agent, int (*)(pool, void *), void *);

static int largest(pool p, void *memory)
{
    size_t size = 0;
    pool_info(p, POOL_INFO_SIZE, &size);
    if (size > *(size_t *)memory)
        *(size_t *)memory = size;
    return 0;
}

static int print_agent(agent a, void *unused)
{
    int kind = -1;
    uint32_t bus = 0;
    size_t memory = 0;
    (void)unused;
    agent_info(a, AGENT_INFO_DEVICE, &kind);
    agent_info(a, AGENT_INFO_BDFID, &bus);
    iterate_pools(a, largest, &memory);
    if (kind == AGENT_IS_GPU)
        printf(" %02x/%zu", bus >> 8 & 0xff, memory >> 20);
    return 0;
}

static void ask_hsa(void)
{
    int (*init)(void) = dlsym(library, "hsa_init"), (*iterate)(int (*)(agent, void *), void *) = dlsym(library, "hsa_iterate_agents");
    agent_info = dlsym(library, "hsa_agent_get_info");
    pool_info = dlsym(library, "hsa_amd_memory_pool_get_info");
    iterate_pools = dlsym(library, "hsa_amd_agent_iterate_memory_pools");
    int code = init();
    printf("%d", code);
    if (code == 0)
        iterate(print_agent, NULL);
}

static void ask_hip(void)
{
    int (*init)(unsigned) = dlsym(library, "hipInit"), (*get_count)(int *) = dlsym(library, "hipGetDeviceCount");
    int (*get_bus)(char *, int, int) = dlsym(library, "hipDeviceGetPCIBusId"), (*get_memory)(size_t *, int) = dlsym(library, "hipDeviceTotalMem");
    int count = 0, code = init(0);
    if (code == 0)
        code = get_count(&count);
    printf("%d", code);
    for (int i = 0; i < count; i++) {
        char bus[64] = ""; // 0000:05:00.0
        size_t memory = 0;
        get_bus(bus, sizeof bus, i);
        get_memory(&memory, i);
        printf(" %.2s/%zu", strlen(bus) > 7 ? bus + 5 : "??", memory >> 20);
    }
}

// The numbers are those of cl.h and cl_ext.h.
static void ask_opencl(void)
{
    enum { TYPE_GPU = 4, GLOBAL_MEMORY = 0x101f, TOPOLOGY = 0x4037, MAX = 64 };
    int (*get_platforms)(unsigned, void **, unsigned *) = dlsym(library, "clGetPlatformIDs");
    int (*get_devices)(void *, uint64_t, unsigned, void **, unsigned *) = dlsym(library, "clGetDeviceIDs");
    int (*get_info)(void *, unsigned, size_t, void *, size_t *) = dlsym(library, "clGetDeviceInfo");
    void *platform, *devices[MAX];
    unsigned platforms = 0, count = 0;
    int code = get_platforms(1, &platform, &platforms);
    if (code == 0 && platforms > 0)
        code = get_devices(platform, TYPE_GPU, MAX, devices, &count);
    printf("%d", code);
    for (unsigned i = 0; i < count && code == 0; i++) {
        unsigned char place[24] = {0}; // the bus is the last but two
        uint64_t memory = 0;
        get_info(devices[i], TOPOLOGY, sizeof place, place, NULL);
        get_info(devices[i], GLOBAL_MEMORY, sizeof memory, &memory, NULL);
        printf(" %02x/%llu", place[21], (unsigned long long)memory >> 20);
    }
}

static const struct runtime {
    const char *name, *libraries[4];
    void (*ask)(void);
} runtimes[] = {
    {"hsa", {"libhsa-runtime64.so.1"}, ask_hsa},
    {"hip", {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}, ask_hip},
    {"opencl", {"libOpenCL.so.1"}, ask_opencl},
};

static void answer(const struct runtime *r, char *line)
{
    alarm(20);
    dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 2);
    for (int i = 0; i < 4 && line != NULL; i++)
        set(variables[i], strsep(&line, " "));
    r->ask();
    printf("\n");
    fflush(stdout);
    _exit(0);
}

int main(int count, char **arguments)
{
    const struct runtime *r = runtimes, *end = runtimes + sizeof runtimes / sizeof *runtimes;
    while (r < end && (count < 2 || strcmp(r->name, arguments[1]) != 0))
        r++;
    if (r == end)
        return 2;
    for (int i = 0; i < 4 && library == NULL && r->libraries[i] != NULL; i++)
        library = dlopen(r->libraries[i], RTLD_NOW); // once: they read the variables as they begin
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    char *line = NULL;
    size_t size = 0;
    if (count == 3 && strcmp(arguments[2], "own") == 0)
        answer(r, NULL);
    for (ssize_t n; (n = getline(&line, &size, stdin)) > 0;) {
        line[strcspn(line, "\n")] = '\0';
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            answer(r, line);
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child)
            return 1;
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)
            printf("ended\n"); // what it had printed was in its own buffer
        else if (status != 0)
            printf("status %x\n", status);
    }
    return 0;
}
