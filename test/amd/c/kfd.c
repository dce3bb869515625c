// The calls of /dev/kfd. Numbers, names and layouts are those of the kernel's include/uapi/linux/kfd_ioctl.h; a field is
// named here by the bytes that lie before it. Nothing computes: queues take work that is never done.
#include "bytes.h"
#include "machine.h"
#include "preload.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void nothing(uint8_t *p) { (void)p; }

static void get_version(uint8_t *p)
{
    put32(p, 0, 1);
    put32(p, 4, 11);
}

static void get_clock_counters(uint8_t *p)
{
    uint64_t nanoseconds = now();
    put64(p, 0, nanoseconds / 10);
    put64(p, 8, nanoseconds);
    put64(p, 16, nanoseconds);
    put64(p, 24, 1000000000);
}

// create_event: who has none yet also gets a page of events, which it maps.
static void create_event(uint8_t *p)
{
    static atomic_uint events;
    unsigned id = ++events;
    if (get_pointer(p, 0) == NULL)
        put64(p, 0, 0x100000);
    put32(p, 8, id);
    put32(p, 24, id);
    put32(p, 28, id);
}

// wait_events: no event comes. A library waits for some of them without end.
static void wait_events(uint8_t *p)
{
    uint32_t milliseconds = get32(p, 16);
    while (milliseconds == UINT32_MAX)
        pause();
    usleep(milliseconds < 100 ? milliseconds * 1000 : 100000);
    put32(p, 20, 1); // KFD_IOC_WAIT_RESULT_TIMEOUT
}

// get_tile_config: without the layout of its memory HIP ends. It is that of gfx9 and later.
static void get_tile_config(uint8_t *p)
{
    put32(p, 16, 0);
    put32(p, 20, 0);
    put32(p, 28, 0x22014042);
    put32(p, 32, 0);
    put32(p, 36, 0);
}

// get_process_apertures: the ranges of addresses of each GPU, 56 bytes each.
static void get_process_apertures(uint8_t *p)
{
    uint8_t *to = get_pointer(p, 0);
    uint32_t room = get32(p, 8);
    for (int i = 0; to != NULL && i < gpu_count && (uint32_t)i < room; i++, to += 56) {
        const uint64_t ranges[] = {UINT64_C(1) << 48, (UINT64_C(1) << 48) + UINT32_MAX, UINT64_C(2) << 48, (UINT64_C(2) << 48) + UINT32_MAX, 0x4000, (UINT64_C(1) << 47) - 1};
        memcpy(to, ranges, sizeof ranges);
        put32(to, 48, gpus[i].id);
        put32(to, 52, 0);
    }
    put32(p, 8, (uint32_t)gpu_count);
}

static void alloc_memory(uint8_t *p)
{
    static atomic_uint handles;
    uint64_t handle = ++handles;
    put64(p, 16, handle << 8);
    put64(p, 24, handle << 12);
}

// map_memory and its reverse: as many devices were served as were asked for.
static void map_memory(uint8_t *p) { put32(p, 20, get32(p, 16)); }

static void set_xnack_mode(uint8_t *p) { put32(p, 0, 0); }

static const struct {
    unsigned number;
    const char *name;
    void (*answer)(uint8_t *p);
} calls[] = {
    {0x01, "GET_VERSION", get_version},
    {0x02, "CREATE_QUEUE", nothing},
    {0x03, "DESTROY_QUEUE", nothing},
    {0x04, "SET_MEMORY_POLICY", nothing},
    {0x05, "GET_CLOCK_COUNTERS", get_clock_counters},
    {0x07, "UPDATE_QUEUE", nothing},
    {0x08, "CREATE_EVENT", create_event},
    {0x09, "DESTROY_EVENT", nothing},
    {0x0a, "SET_EVENT", nothing},
    {0x0b, "RESET_EVENT", nothing},
    {0x0c, "WAIT_EVENTS", wait_events},
    {0x11, "SET_SCRATCH_BACKING_VA", nothing},
    {0x12, "GET_TILE_CONFIG", get_tile_config},
    {0x13, "SET_TRAP_HANDLER", nothing},
    {0x14, "GET_PROCESS_APERTURES_NEW", get_process_apertures},
    {0x15, "ACQUIRE_VM", nothing},
    {0x16, "ALLOC_MEMORY_OF_GPU", alloc_memory},
    {0x17, "FREE_MEMORY_OF_GPU", nothing},
    {0x18, "MAP_MEMORY_TO_GPU", map_memory},
    {0x19, "UNMAP_MEMORY_FROM_GPU", map_memory},
    {0x21, "SET_XNACK_MODE", set_xnack_mode},
};

int answer_kfd(unsigned number, uint8_t *p)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (calls[i].number == number) {
            calls[i].answer(p);
            say("call kfd %02x %s\n", number, calls[i].name);
            return 0;
        }
    say("call kfd %02x: unknown\n", number);
    return EINVAL;
}
