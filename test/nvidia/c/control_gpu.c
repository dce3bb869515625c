// Controls of a GPU (class 2080).
#include "controls.h"
#include "preload.h"

#include <stdio.h>

static const struct architecture architectures[] = {
    {"tu104", 0x160, 4, 0x705, {0xc5c0, 0xc597, 0xc5b5, 0xc461, 0xc46f}},
    {"ga100", 0x170, 0, 0x802, {0xc6c0, 0xc697, 0xc6b5, 0xc561, 0xc56f}},
    {"ga102", 0x170, 2, 0x806, {0xc7c0, 0xc797, 0xc7b5, 0xc561, 0xc56f}},
    {"gh100", 0x180, 0, 0x900, {0xcbc0, 0xcb97, 0xc8b5, 0xc661, 0xc86f}},
    {"ad104", 0x190, 4, 0x809, {0xc9c0, 0xc997, 0xc7b5, 0xc561, 0xc56f}},
};

const struct architecture *architecture_named(const char *name)
{
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (strcmp(architectures[i].name, name) == 0)
            return &architectures[i];
    return NULL;
}

uint32_t gpu_name(const struct call *c)
{
    snprintf((char *)c->p + 4, 64, "%s", c->gpu->name);
    return OK;
}

uint32_t gpu_uuid(const struct call *c)
{
    put32(c->p, 8, write_uuid(c->gpu, c->p + 12, get32(c->p, 4)));
    return OK;
}

uint32_t gpu_id(const struct call *c)
{
    put32(c->p, 0, c->gpu->id);
    return OK;
}

uint32_t bus_pci_info(const struct call *c)
{
    put32(c->p, 0, c->gpu->device << 16 | 0x10de);
    put32(c->p, 4, c->gpu->subsystem << 16 | c->gpu->subsystem >> 16);
    put32(c->p, 8, 0xa1); // revision
    put32(c->p, 12, c->gpu->device);
    return OK;
}

// A list of questions: index, value, …
static uint32_t list(const struct call *c, uint8_t *at, uint32_t (*value)(const struct gpu *, uint32_t))
{
    for (uint32_t i = 0; i < get32(c->p, 0); i++)
        put32(at, 8 * i + 4, value(c->gpu, get32(at, 8 * i)));
    return OK;
}

static uint32_t gpu_value(const struct gpu *g, uint32_t index)
{
    switch (index) {
    case 0x2a: // MIG mode
        return g->mig;
    case 0x2c:
        return g->architecture->compute;
    case 0x36:
    case 0x37:
    case 0x3d:
        return 1;
    }
    return 0;
}
uint32_t gpu_info(const struct call *c) { return list(c, c->p + 4, gpu_value); }

// In KiB where it is a size.
static uint32_t memory_value(const struct gpu *g, uint32_t index)
{
    const uint32_t all = (uint32_t)(g->memory >> 10);
    switch (index) {
    case 0x07: // of the frame buffer, in several ways
    case 0x08:
    case 0x09:
    case 0x0a:
    case 0x20:
        return all;
    case 0x12: // free
    case 0x16:
        return all - (g->used << 10);
    case 0x04:
        return 24;
    case 0x05: // BAR1
        return 128u << 20;
    case 0x0b:
        return 5120; // width of the bus
    case 0x0d:
        return 0x14;
    case 0x0e:
        return 16;
    case 0x14:
        return 0xffffff;
    case 0x19:
        return 10;
    case 0x1a:
        return 0x3ff;
    case 0x1b: // second level cache
        return 40u << 20;
    case 0x1d:
    case 0x1f: // BAR1 that is free
        return (128u << 20) - 2048;
    case 0x22:
        return 80;
    case 0x23:
        return 160;
    case 0x2a:
        return 1;
    }
    return 0;
}
uint32_t memory_info(const struct call *c) { return list(c, c->p + 4, memory_value); }

static uint32_t bus_value(const struct gpu *g, uint32_t index)
{
    switch (index) {
    case 0x00:
        return 3; // PCI express
    case 0x03:
    case 0x04:
        return 0x00456104; // link capabilities
    case 0x07:
    case 0x08:
        return 0x11040000; // link status
    case 0x0f:
        return g->bus;
    case 0x13:
    case 0x2e:
        return 3;
    case 0x2d:
        return 0x33333;
    }
    return 0;
}
uint32_t bus_info(const struct call *c) { return list(c, c->p + 4, bus_value); }

static uint32_t graphics_value(const struct gpu *g, uint32_t index)
{
    switch (index) {
    case 0x09: // groups of two multiprocessors
        return g->multiprocessors / 2;
    case 0x0c:
        return g->architecture->compute;
    case 0x1d:
        return g->multiprocessors * 64;
    case 0x23:
        return g->multiprocessors * 4;
    case 0x07:
        return 7;
    case 0x0a:
        return 4;
    case 0x0b:
        return 16384;
    case 0x0d:
    case 0x13:
    case 0x2c:
    case 0x2d:
        return 64;
    case 0x0e:
        return 32;
    case 0x14:
    case 0x17:
    case 0x24:
    case 0x2e:
        return 8;
    case 0x15:
        return 12;
    case 0x1b:
        return 24;
    case 0x1c:
    case 0x1e:
        return 3;
    case 0x20:
    case 0x26:
    case 0x32:
        return 2;
    case 0x25:
        return 96;
    }
    return 0;
}
uint32_t graphics_info(const struct call *c) { return list(c, get_pointer(c->p, 8), graphics_value); }

uint32_t architecture_info(const struct call *c)
{
    put32(c->p, 0, c->gpu->architecture->architecture);
    put32(c->p, 4, c->gpu->architecture->implementation);
    put32(c->p, 8, 0xa1);
    put8(c->p, 12, 0);
    return OK;
}

uint32_t bar_info(const struct call *c)
{
    static const uint64_t sizes[] = {0x1000000, 0x2000000000, 0x2000000}, places[] = {0xb0000000, 0x2000000000, 0x3000000000};
    put32(c->p, 0, 3);
    for (uint32_t i = 0; i < 3; i++) {
        put32(c->p, 8 + 24 * i, 0);
        put32(c->p, 12 + 24 * i, (uint32_t)(sizes[i] >> 20));
        put64(c->p, 16 + 24 * i, sizes[i]);
        put64(c->p, 24 + 24 * i, places[i]);
    }
    return OK;
}

uint32_t engines(const struct call *c)
{
    static const uint8_t all[] = {1, 9, 10, 11, 12, 13, 14, 15, 16}; // graphics and copy
    put32(c->p, 0, sizeof all);
    for (uint32_t i = 0; i < sizeof all; i++)
        put32(c->p, 4 + 4 * i, all[i]);
    return OK;
}

static uint32_t gpcs(const struct gpu *g) { return g->multiprocessors >= 98 ? 7 : (g->multiprocessors + 13) / 14; }

// tpcs is the mask of the groups of two multiprocessors of a GPC.
static uint32_t tpcs(uint32_t gpc) { return gpc < 5 ? 0xff : 0x7f; }

uint32_t gpc_mask(const struct call *c)
{
    put32(c->p, 16, (1u << gpcs(c->gpu)) - 1);
    return OK;
}

uint32_t tpc_mask(const struct call *c)
{
    put32(c->p, 20, tpcs(get32(c->p, 16)));
    return OK;
}

// floorsweeping answers what parts of the GPU are there, a list of questions: kind, status, and either an answer or a GPC and its answer.
uint32_t floorsweeping(const struct call *c)
{
    enum { HEAD = 8, EACH = 20, GPC_COUNT = 1, CHIPLET_GPC_MAP = 2, TPC_MASK = 3, PPC_MASK = 4 };
    for (uint32_t k = 0; k < (get32(c->p, 0) & 0xffff) && k < 96; k++) {
        uint8_t *at = c->p + HEAD + EACH * k;
        const uint32_t kind = get32(at, 0) & 0xffff, gpc = get32(at, 8);
        put32(at, 4, OK);
        switch (kind) {
        case GPC_COUNT:
            put32(at, 8, gpcs(c->gpu));
            break;
        case CHIPLET_GPC_MAP:
            put32(at, 12, gpc);
            break;
        case TPC_MASK:
            put32(at, 12, tpcs(gpc));
            break;
        case PPC_MASK:
            put32(at, 12, 7);
            break;
        default:
            say("what is there of kind %u: unknown\n", kind);
        }
    }
    return OK;
}

// multiprocessor_order: where each is. 580 asks for three numbers more of each than older drivers do.
uint32_t multiprocessor_order(const struct call *c)
{
    enum { MOST = 512, TAIL = 24, VIRTUAL_TPC = 16 };
    const uint32_t groups = c->gpu->multiprocessors / 2, each = (c->size - TAIL) / MOST;
    for (uint32_t i = 0; i < c->gpu->multiprocessors && i < MOST; i++) {
        uint8_t *at = c->p + each * i;
        uint32_t group = i % groups;
        put16(at, 0, group % 7);
        put16(at, 2, group / 7);
        put16(at, 4, i / groups);
        put16(at, 6, group);
        put16(at, 8, group % 7);
        put16(at, 10, group / 7);
        if (each > VIRTUAL_TPC)
            put16(at, VIRTUAL_TPC, group);
    }
    put16(c->p, each * MOST, c->gpu->multiprocessors);
    put16(c->p, each * MOST + 2, groups);
    return OK;
}

uint32_t copy_engines(const struct call *c)
{
    for (uint32_t i = 0; i < 8; i++) {
        put8(c->p, 2 * i, i < 2);
        put8(c->p, 2 * i + 1, 0);
    }
    put32(c->p, 64, 0xff);
    return OK;
}

uint32_t compute_mode(const struct call *c)
{
    put32(c->p, 0, c->gpu->compute_mode);
    return OK;
}

// process_ids lists those whose context has the asked class: compute, or graphics.
uint32_t process_ids(const struct call *c)
{
    const uint32_t class = get32(c->p, 4);
    const uint16_t *own = c->gpu->architecture->classes;
    const char kind = class == own[0] ? 'C' : class == own[1] ? 'G' : 0;
    uint32_t n = 0;
    for (int i = 0; i < c->gpu->process_count; i++) {
        const struct process *p = &c->gpu->processes[i];
        bool elsewhere = c->slice != NULL && (p->gpu_instance != c->slice->gpu_instance ||
                                              (c->object->compute_instance != ANY && p->compute_instance != c->slice->compute_instance));
        if (p->kind == kind && !elsewhere)
            put32(c->p, 12 + 4 * n++, p->pid);
    }
    put32(c->p, 8, n);
    return OK;
}

uint32_t process_info(const struct call *c)
{
    for (uint32_t k = 0; k < get32(c->p, 0) && k < 200; k++) {
        uint8_t *at = c->p + 8 + 72 * k;
        put32(at, 8, OBJECT_NOT_FOUND);
        memset(at + 16, 0, 48);
        for (int i = 0; i < c->gpu->process_count; i++) {
            const struct process *p = &c->gpu->processes[i];
            if (p->pid != get32(at, 0))
                continue;
            put32(at, 8, OK);
            put64(at, 16, (uint64_t)p->mib << 20);
            put32(at, 64, p->compute_instance);
            put32(at, 68, p->gpu_instance);
        }
    }
    return OK;
}

// thermal runs a list of instructions: result, executed, code, operands.
uint32_t thermal(const struct call *c)
{
    enum { HEAD = 24, EACH = 44, SENSORS = 0x100, TARGET = 0x101, READING = 0x1500 };
    for (uint32_t k = 0; k < get32(c->p, 20) && k < 32; k++) {
        uint8_t *at = c->p + HEAD + EACH * k;
        uint32_t code = get32(at, 8);
        put32(at, 0, OK);
        put32(at, 4, 1);
        put32(at, code == SENSORS ? 12 : 16, code == READING ? c->gpu->celsius : 1); // one sensor, on the GPU
    }
    put32(c->p, 16, get32(c->p, 20));
    return OK;
}

uint32_t clock_domains(const struct call *c)
{
    put32(c->p, 4, 0xffffffff); // without, the load is "not supported"
    return OK;
}

uint32_t load(const struct call *c)
{
    put32(c->p, 8, c->gpu->percent);
    put32(c->p, 24, c->gpu->memory_percent);
    return OK;
}

uint32_t performance_state(const struct call *c)
{
    put32(c->p, 0, 1u << c->gpu->performance_state);
    return OK;
}

uint32_t slowed_for(const struct call *c)
{
    memset(c->p, 0, c->size);
    return OK;
}

uint32_t power_monitor(const struct call *c)
{
    put32(c->p, 0, 1);
    put32(c->p, 8, 1); // mask of its channels
    return OK;
}

uint32_t power(const struct call *c)
{
    put32(c->p, 36, c->gpu->milliwatts);
    return OK;
}

static uint32_t clock_value(const struct gpu *g, uint32_t index)
{
    (void)g, (void)index;
    return 0;
}
uint32_t clocks(const struct call *c) { return list(c, c->p + 4, clock_value); }
