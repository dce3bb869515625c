// Controls of the whole machine (class 0000) and of a device (class 0080).
#include "controls.h"

#include <stdio.h>

static int gpu_with_id(uint32_t id)
{
    for (int i = 0; i < gpu_count; i++)
        if (gpus[i].id == id)
            return i;
    return -1;
}

uint32_t build_version(const struct call *c)
{
    uint32_t room = get32(c->p, 0);
    for (uint32_t at = 8; at <= 16; at += 8)
        if (get_pointer(c->p, at) != NULL)
            snprintf((char *)get_pointer(c->p, at), room, "%s", driver_version);
    if (get_pointer(c->p, 24) != NULL)
        snprintf((char *)get_pointer(c->p, 24), room, "NVIDIA UNIX x86_64 Kernel Module");
    put32(c->p, 0, 80);
    return OK;
}

uint32_t gpu_ids(const struct call *c)
{
    memset(c->p, 0xff, c->size);
    for (int i = 0; i < gpu_count; i++)
        put32(c->p, 4 * (uint32_t)i, gpus[i].id);
    return OK;
}

uint32_t attach_ids(const struct call *c)
{
    put32(c->p, 128, 0xffffffff); // none failed
    return OK;
}

// active_devices are the MIG devices of a GPU that is split, and the other GPUs: identifier, GPU instance, compute instance.
uint32_t active_devices(const struct call *c)
{
    enum { WHOLE = 0xffffffff, EACH = 12 };
    uint32_t n = 0;
    for (int i = 0; i < gpu_count; i++) {
        const int slices = gpus[i].mig == MIG_ON ? gpus[i].slice_count : 0;
        for (int k = 0; k < (gpus[i].mig == MIG_ON ? slices : 1); k++) {
            uint8_t *at = c->p + 4 + EACH * n++;
            put32(at, 0, gpus[i].id);
            put32(at, 4, slices == 0 ? WHOLE : gpus[i].slices[k].gpu_instance);
            put32(at, 8, slices == 0 ? WHOLE : gpus[i].slices[k].compute_instance);
        }
    }
    put32(c->p, 0, n);
    return OK;
}

uint32_t id_info(const struct call *c)
{
    const uint32_t more = c->size >= 40 ? 8 : 0; // of the pointer that the second version left out
    int gpu = gpu_with_id(get32(c->p, 0));
    if (gpu < 0)
        return INVALID_ARGUMENT;
    put32(c->p, 4, 1);                           // flags: in use
    put32(c->p, 8, (uint32_t)gpu);               // device instance
    put32(c->p, 12, 0);                          // sub-device instance
    put32(c->p, 16 + more, 0);                   // SLI status
    put32(c->p, 20 + more, 0xffffffff);          // board
    put32(c->p, 24 + more, (uint32_t)gpu);       // GPU instance
    put32(c->p, 28 + more, 0xffffffff);          // NUMA node
    return OK;
}

uint32_t init_status(const struct call *c)
{
    put32(c->p, 4, OK);
    return OK;
}

uint32_t device_ids(const struct call *c)
{
    put32(c->p, 0, (1u << gpu_count) - 1);
    return OK;
}

uint32_t pci_info(const struct call *c)
{
    int gpu = gpu_with_id(get32(c->p, 0));
    if (gpu < 0)
        return INVALID_ARGUMENT;
    put32(c->p, 4, 0);
    put16(c->p, 8, gpus[gpu].bus);
    put16(c->p, 10, 0);
    return OK;
}

enum { UUID_BINARY = 2 }; // in the flags of the three below

uint32_t write_uuid(const struct gpu *g, uint8_t *to, uint32_t flags)
{
    if ((flags & UUID_BINARY) == 0)
        return (uint32_t)snprintf((char *)to, 256, "GPU-%s", g->text) + 1;
    memcpy(to, g->uuid, sizeof g->uuid);
    return sizeof g->uuid;
}

uint32_t uuid_info(const struct call *c)
{
    for (int i = 0; i < gpu_count; i++) {
        uint8_t uuid[256] = {0};
        uint32_t size = write_uuid(&gpus[i], uuid, get32(c->p, 256));
        if (memcmp(uuid, c->p, size) == 0) {
            put32(c->p, 260, gpus[i].id);
            put32(c->p, 264, (uint32_t)i);
            put32(c->p, 268, 0);
            return OK;
        }
    }
    return INVALID_ARGUMENT;
}

uint32_t uuid_from_id(const struct call *c)
{
    int gpu = gpu_with_id(get32(c->p, 0));
    if (gpu < 0)
        return INVALID_ARGUMENT;
    put32(c->p, 264, write_uuid(&gpus[gpu], c->p + 8, get32(c->p, 4)));
    return OK;
}

uint32_t drain_state(const struct call *c)
{
    put32(c->p, 4, 0);
    put32(c->p, 8, 0);
    return OK;
}

uint32_t memop_enable(const struct call *c)
{
    put32(c->p, 0, 0);
    return OK;
}

uint32_t address_space(const struct call *c)
{
    const struct object *o = find_object(c->object->client, get32(c->p, 0));
    uint32_t space = 1; // system memory
    switch (o == NULL ? 0 : o->class) {
    case 0x40:
        space = 2; // video memory
        break;
    case 0xc361: // user mode registers of the architectures
    case 0xc461:
    case 0xc561:
    case 0xc661:
        space = 3;
        break;
    }
    put32(c->p, 8, space);
    return OK;
}

uint32_t handle_info(const struct call *c)
{
    const struct object *o = find_object(c->object->client, get32(c->p, 0));
    if (o == NULL)
        return OBJECT_NOT_FOUND;
    put64(c->p, 8, get32(c->p, 4) == 1 ? o->parent : get32(c->p, 4) == 2 ? o->class : 0);
    return OK;
}

// ---- of a device (class 0080)

static const uint16_t common_classes[] = {
    0xc365, 0x9067, 0x902d, 0x90f1, 0x844c, 0x90e7, 0x90e6, 0x9074, 0x9096, 0xc076, 0xa06c, 0xa140, 0xc369, 0x0060,
    0x0070, 0x5080, 0x50a0, 0x503b, 0x503c, 0xa081, 0xa084, 0xcb33, 0x00de, 0xc46f, 0xc461, 0xc36f, 0xc361,
};

// list_classes writes at most room of the classes that an object of this GPU may have, and returns their number.
static uint32_t list_classes(const struct gpu *g, uint8_t *to, uint32_t room)
{
    const uint16_t *own = g->architecture->classes;
    const size_t common = sizeof common_classes / sizeof *common_classes;
    uint32_t n = 0;
    for (size_t i = 0; i < 5 + common; i++) {
        const uint16_t class = i < 5 ? own[i] : common_classes[i - 5];
        if (i >= 5 && (class == own[3] || class == own[4]))
            continue;
        if (n < room)
            put32(to, 4 * n, class);
        n++;
    }
    return n;
}

uint32_t class_list(const struct call *c)
{
    put32(c->p, 0, list_classes(c->gpu, c->p + 4, 160));
    return OK;
}

// class_list_by_pointer is asked twice: for the number, and for the list.
uint32_t class_list_by_pointer(const struct call *c)
{
    uint8_t *to = get_pointer(c->p, 8);
    put32(c->p, 0, list_classes(c->gpu, to, to == NULL ? 0 : get32(c->p, 0)));
    return OK;
}

uint32_t one(const struct call *c)
{
    put32(c->p, 0, 1);
    return OK;
}

uint32_t persistence(const struct call *c)
{
    put32(c->p, 0, c->gpu->persistent);
    return OK;
}
