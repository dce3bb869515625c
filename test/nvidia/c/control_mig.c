// Controls of MIG: of a GPU, of a GPU instance (class c637), of a compute instance (c638).
#include "controls.h"

#include <stdio.h>

static uint32_t compute_size(uint32_t gpcs) { return gpcs >= 7 ? 0 : gpcs == 4 ? 1 : gpcs == 3 ? 2 : gpcs == 2 ? 3 : 5; }
static uint32_t memory_size(uint32_t gpcs) { return gpcs >= 7 ? 0 : gpcs >= 3 ? 1 : gpcs == 2 ? 2 : 3; }

// first_of reports whether no slice before this one is of the same GPU instance.
static bool first_of(const struct gpu *g, int i)
{
    for (int k = 0; k < i; k++)
        if (g->slices[k].gpu_instance == g->slices[i].gpu_instance)
            return false;
    return true;
}

uint32_t active_instances(const struct call *c)
{
    uint32_t n = 0;
    if (c->gpu->mig != MIG_ON)
        return NOT_SUPPORTED;
    for (int i = 0; i < c->gpu->slice_count; i++)
        if (first_of(c->gpu, i))
            put32(c->p, 4 * n++, c->gpu->slices[i].gpu_instance);
    put32(c->p, 36, n);
    return OK;
}

uint32_t gpu_instances(const struct call *c)
{
    enum { EACH = 224, ALL = 1796, COUNT = 1792, CLASS_GPU_INSTANCE = 0xc637 };
    int objects, only = c->object->gpu_instance;
    const struct object *all = objects_of(&objects);
    for (int i = 0; i < objects && only == ANY; i++) // what hangs below the subdevice counts, too
        if (all[i].class == CLASS_GPU_INSTANCE && all[i].client == c->object->client && all[i].parent == c->object->handle)
            only = all[i].gpu_instance;
    uint32_t n = 0;
    for (int i = 0; i < c->gpu->slice_count; i++) {
        const struct slice *s = &c->gpu->slices[i];
        if (!first_of(c->gpu, i) || (c->p[ALL] != 1 && only != ANY && only != (int)s->gpu_instance))
            continue;
        uint8_t *at = c->p + EACH * n++;
        memset(at, 0, EACH);
        put32(at, 0, s->gpu_instance);
        put32(at, 4, memory_size(s->gpcs) | compute_size(s->gpcs) << 2);
        put32(at, 8, 1);
        put32(at, 12, s->gpcs);
        put32(at, 16, s->multiprocessors);
        put32(at, 20, s->gpcs);
        put32(at, 40, s->gpcs);
        put32(at, 44, s->gpcs);
        put32(at, 52, s->gpcs);
        put32(at, 84, s->gpcs);
        put64(at, 184, s->memory);
        put8(at, 208, 1);
    }
    put32(c->p, COUNT, n);
    return OK;
}

uint32_t instance_sizes(const struct call *c)
{
    static const uint8_t gpcs[] = {7, 4, 3, 2, 1}, eighths[] = {8, 4, 4, 2, 1};
    put32(c->p, 0, sizeof gpcs);
    for (uint32_t i = 0; i < sizeof gpcs; i++) {
        uint8_t *at = c->p + 8 + 64 * i;
        memset(at, 0, 64);
        put32(at, 0, memory_size(gpcs[i]) | compute_size(gpcs[i]) << 2);
        put32(at, 4, gpcs[i]);
        put32(at, 12, gpcs[i]);
        put32(at, 16, gpcs[i]);
        put32(at, 24, gpcs[i] * 8u);
        put32(at, 28, 14u * gpcs[i]);
        put32(at, 32, gpcs[i]);
        put64(at, 56, c->gpu->memory / 8 * eighths[i]);
    }
    return OK;
}

uint32_t compute_sizes(const struct call *c)
{
    static const uint8_t gpcs[] = {7, 4, 3, 2, 1};
    put32(c->p, 0, sizeof gpcs);
    for (uint32_t i = 0; i < sizeof gpcs; i++) {
        uint8_t *at = c->p + 4 + 20 * i;
        put8(at, 0, compute_size(gpcs[i]));
        put32(at, 4, 0);
        put32(at, 8, gpcs[i]);
        put32(at, 12, gpcs[i]);
        put32(at, 16, 14u * gpcs[i]);
    }
    return OK;
}

uint32_t compute_instance_ids(const struct call *c)
{
    uint32_t n = 0;
    for (int i = 0; i < c->gpu->slice_count; i++) {
        const struct slice *s = &c->gpu->slices[i];
        if ((int)s->gpu_instance != c->object->gpu_instance)
            continue;
        put32(c->p, 4 + 4 * n, s->compute_instance);
        snprintf((char *)c->p + 36 + 41 * n, 41, "MIG-%.36s", s->text);
        n++;
    }
    put32(c->p, 0, n);
    return OK;
}

uint32_t compute_instances(const struct call *c)
{
    enum { EACH = 52 };
    uint32_t n = 0;
    for (int i = 0; i < c->gpu->slice_count; i++) {
        const struct slice *s = &c->gpu->slices[i];
        if ((int)s->gpu_instance != c->object->gpu_instance || (c->object->compute_instance != ANY && (int)s->compute_instance != c->object->compute_instance))
            continue;
        uint8_t *at = c->p + 36 + EACH * n;
        memset(at, 0, EACH);
        put32(c->p, 4 + 4 * n++, s->compute_instance);
        put32(at, 0, s->gpcs);
        put32(at, 8, s->gpcs);
        put32(at, 12, s->gpcs);
        put32(at, 40, s->multiprocessors);
        put32(at, 48, compute_size(s->gpcs));
    }
    put32(c->p, 0, n);
    return OK;
}

uint32_t compute_instance_uuid(const struct call *c)
{
    const struct slice *s = slice_of(c->gpu, c->object->gpu_instance, c->object->compute_instance);
    if (s == NULL)
        return INVALID_ARGUMENT;
    memcpy(c->p, s->uuid, sizeof s->uuid);
    snprintf((char *)c->p + 16, 41, "MIG-%.36s", s->text);
    return OK;
}
