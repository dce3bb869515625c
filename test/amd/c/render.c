// The calls of a render node, which the libraries make through libdrm. Numbers and layouts are those of libdrm's drm.h and
// amdgpu_drm.h.
#include "bytes.h"
#include "machine.h"
#include "preload.h"

#include <errno.h>

enum { VERSION = 0x00, AMDGPU_INFO = 0x45 };
enum { ACCEL_WORKING = 0x00, READ_MMR_REG = 0x15, DEV_INFO = 0x16, MEMORY = 0x19 }; // of AMDGPU_INFO

// copy_text fills one of the texts of a version: its length stands before the place for it.
static void copy_text(uint8_t *p, uint32_t offset, const char *text)
{
    uint64_t length = strlen(text), room;
    uint8_t *to = get_pointer(p, offset + 8);
    memcpy(&room, p + offset, sizeof room);
    if (to != NULL)
        memcpy(to, text, length < room ? length : room);
    put64(p, offset, length);
}

static void version(uint8_t *p)
{
    put32(p, 0, 3);
    put32(p, 4, 49);
    put32(p, 8, 0);
    copy_text(p, 16, "amdgpu");
    copy_text(p, 32, "20150101");
    copy_text(p, 48, "AMD GPU");
}

// device_info is struct drm_amdgpu_info_device.
static void device_info(const struct gpu *gpu, uint8_t info[512])
{
    put32(info, 0, gpu->device);
    put32(info, 4, 1);    // revision of the chip
    put32(info, 8, 0x3c); // as others see it
    put32(info, 12, 1);
    put32(info, 16, 141); // AMDGPU_FAMILY_AI
    put32(info, 20, 8);   // shader engines
    put32(info, 24, 1);
    put32(info, 28, 100000);  // kHz of the counter
    put64(info, 32, 1700000); // kHz, highest
    put64(info, 40, 1600000);
    put32(info, 48, 110);              // compute units
    put64(info, 144, 0x200000);        // first address
    put64(info, 152, 0x800000000000);  // last
    put32(info, 160, 4096);            // alignment
    put32(info, 164, 2 << 20);         // fragment of a page table
    put32(info, 168, 4096);            // page
    put32(info, 180, 4096);            // bits to the memory
    put32(info, 240, 64);              // size of a wave
    put64(info, 336, 0xffff800000000000); // the upper half of the addresses
    put64(info, 344, 0xffffffffffe00000);
}

// memory_info is struct drm_amdgpu_memory_info: three heaps, each with its size, what can be used, what is in use, and the
// largest block.
static void memory_info(const struct gpu *gpu, uint8_t info[512])
{
    const uint64_t heaps[] = {gpu->memory, gpu->memory, UINT64_C(4) << 30};
    for (uint32_t i = 0; i < 3; i++) {
        put64(info, 32 * i, heaps[i]);
        put64(info, 32 * i + 8, heaps[i]);
        put64(info, 32 * i + 24, heaps[i]);
    }
}

static int info(const struct gpu *gpu, uint8_t *p)
{
    uint8_t answer[512] = {0}, *to = get_pointer(p, 0);
    uint32_t room = get32(p, 8), query = get32(p, 12);
    switch (query) {
    case ACCEL_WORKING:
        put32(answer, 0, 1);
        break;
    case DEV_INFO:
        device_info(gpu, answer);
        break;
    case MEMORY:
        memory_info(gpu, answer);
        break;
    case READ_MMR_REG: // registers that tell apart variants of one chip
        break;
    default:
        say("query %02x of %u bytes: unknown\n", query, room);
    }
    memcpy(to, answer, room < sizeof answer ? room : sizeof answer);
    return 0;
}

int answer_render(const struct gpu *gpu, unsigned number, uint8_t *p)
{
    say("call render %d %02x\n", gpu->minor, number);
    switch (number) {
    case VERSION:
        version(p);
        return 0;
    case AMDGPU_INFO:
        return info(gpu, p);
    }
    say("call render %02x: unknown\n", number);
    return EINVAL;
}
