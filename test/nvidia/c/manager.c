// The resource manager's front door: the calls of /dev/nvidiactl and /dev/nvidiaN ("escapes") and the objects that they make.
// Numbers and layouts are those of NVIDIA/open-gpu-kernel-modules: nv-ioctl-numbers.h, nv-ioctl.h, nv_escape.h, nvos.h.
#include "machine.h"
#include "bytes.h"
#include "preload.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    ESCAPE_ALLOC_MEMORY = 0x27,
    ESCAPE_FREE = 0x29,
    ESCAPE_CONTROL = 0x2a,
    ESCAPE_ALLOC = 0x2b,
    ESCAPE_DUP_OBJECT = 0x34,
    ESCAPE_VID_HEAP = 0x4a,
    ESCAPE_MAP_MEMORY = 0x4e,
    ESCAPE_UNMAP_MEMORY = 0x4f,
    ESCAPE_CARD_INFO = 0xc8,
    ESCAPE_REGISTER_FD = 0xc9,
    ESCAPE_ALLOC_OS_EVENT = 0xce,
    ESCAPE_FREE_OS_EVENT = 0xcf,
    ESCAPE_CHECK_VERSION = 0xd2,
    ESCAPE_ATTACH_GPUS = 0xd4,
    ESCAPE_SYS_PARAMS = 0xd6,
    ESCAPE_NUMA_INFO = 0xd7,
};

// Classes of objects (src/common/sdk/nvidia/inc/class).
enum {
    CLASS_ROOT = 0x41,
    CLASS_DEVICE = 0x80,
    CLASS_GPU_INSTANCE = 0xc637,
    CLASS_COMPUTE_INSTANCE = 0xc638,
};

enum { MAX_OBJECTS = 8192, CARD_SIZE = 72 };

static struct object objects[MAX_OBJECTS]; // class 0: freed
static int object_count;
static uint32_t next_handle = 0xc1d00001;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const struct object *objects_of(int *count)
{
    *count = object_count;
    return objects;
}

const struct object *find_object(uint32_t client, uint32_t handle)
{
    for (int i = object_count - 1; i >= 0; i--)
        if (objects[i].class != 0 && objects[i].handle == handle && (objects[i].client == client || handle == client))
            return &objects[i];
    return NULL;
}

const struct slice *slice_of(const struct gpu *gpu, int gpu_instance, int compute_instance)
{
    for (int i = 0; i < gpu->slice_count; i++) {
        const struct slice *s = &gpu->slices[i];
        if ((int)s->gpu_instance == gpu_instance && (compute_instance == ANY || (int)s->compute_instance == compute_instance))
            return s;
    }
    return NULL;
}

static void remember(struct object o)
{
    int i = 0;
    while (i < object_count && objects[i].class != 0)
        i++;
    if (i == MAX_OBJECTS) {
        fprintf(stderr, "cannot hold more than %d objects\n", MAX_OBJECTS);
        abort();
    }
    objects[i] = o;
    if (i == object_count)
        object_count++;
}

// allocate makes an object below its parent. A device's parameters say which GPU it is, those of a subscription to a part of
// a MIG device which part.
static uint32_t allocate(uint32_t client, uint32_t parent, uint32_t *handle, uint32_t class, uint8_t *parameters)
{
    struct object o = {.client = client, .parent = parent, .class = class, .gpu = -1, .gpu_instance = ANY, .compute_instance = ANY};
    const struct object *above = find_object(client, parent);
    if (above != NULL) {
        o.gpu = above->gpu;
        o.gpu_instance = above->gpu_instance;
        o.compute_instance = above->compute_instance;
    }
    if (*handle == 0)
        *handle = next_handle++;
    o.handle = *handle;
    if (class == 0 || class == 1 || class == CLASS_ROOT) {
        o.client = *handle;
        o.class = CLASS_ROOT;
        if (parameters != NULL)
            put32(parameters, 0, *handle);
    }
    if (class == CLASS_DEVICE && parameters != NULL)
        o.gpu = (int)get32(parameters, 0);
    if (o.gpu >= gpu_count)
        return INVALID_ARGUMENT;
    if (class == CLASS_GPU_INSTANCE && parameters != NULL) {
        o.gpu_instance = (int)get32(parameters, 8);
        if (o.gpu < 0 || slice_of(&gpus[o.gpu], o.gpu_instance, ANY) == NULL)
            return OBJECT_NOT_FOUND;
    }
    if (class == CLASS_COMPUTE_INSTANCE && parameters != NULL) {
        o.compute_instance = (int)get32(parameters, 8);
        if (o.gpu < 0 || slice_of(&gpus[o.gpu], o.gpu_instance, o.compute_instance) == NULL)
            return OBJECT_NOT_FOUND;
    }
    remember(o);
    return OK;
}

// release frees an object with all that hangs below it.
static void release(uint32_t client, uint32_t handle)
{
    for (int i = 0; i < object_count; i++) {
        struct object *o = &objects[i];
        if (o->class == 0 || o->client != client)
            continue;
        if (o->handle == handle) {
            o->class = 0;
        } else if (o->parent == handle) {
            release(client, o->handle);
        }
    }
}

static uint32_t duplicate(uint32_t client, uint32_t parent, uint32_t handle, const struct object *of)
{
    struct object o = {.client = client, .handle = handle, .parent = parent, .class = 1, .gpu = -1, .gpu_instance = ANY, .compute_instance = ANY};
    if (of != NULL) {
        o.class = of->class;
        o.gpu = of->gpu;
        o.gpu_instance = of->gpu_instance;
        o.compute_instance = of->compute_instance;
    }
    if (o.handle == 0)
        o.handle = next_handle++;
    remember(o);
    return o.handle;
}

static void list_cards(uint8_t *to, uint32_t size)
{
    memset(to, 0, size);
    for (int i = 0; i < gpu_count && (uint32_t)(i + 1) * CARD_SIZE <= size; i++) {
        uint8_t *card = to + i * CARD_SIZE;
        put8(card, 0, 1); // valid
        put8(card, 8, gpus[i].bus);
        put16(card, 12, 0x10de);
        put16(card, 14, gpus[i].device);
        put32(card, 16, gpus[i].id);
        put16(card, 20, 60 + (uint32_t)i);                          // interrupt
        put64(card, 24, 0xb0000000u + 0x1000000u * (uint64_t)i);    // registers, and their size
        put64(card, 32, 0x1000000);
        put64(card, 40, 0x2000000000u * (uint64_t)(i + 1));         // memory, and its size
        put64(card, 48, 0x2000000000u);
        put32(card, 56, (uint32_t)i);                               // minor number
    }
}

// check_version: a library of another version than the module is refused, unless it only asks.
static int check_version(uint8_t *p)
{
    bool differs = get32(p, 0) == 0 && strcmp((char *)p + 8, driver_version) != 0;
    put32(p, 4, !differs);
    snprintf((char *)p + 8, 64, "%s", driver_version);
    if (differs)
        errno = EINVAL;
    return differs ? -1 : 0;
}

static void control(uint8_t *p)
{
    const struct object *o = find_object(get32(p, 0), get32(p, 4));
    uint32_t command = get32(p, 8), status = answer_control(o, command, get_pointer(p, 16), get32(p, 24));
    put32(p, 28, status);
    say("control %08x class %x gpu %d: %x\n", command, o == NULL ? 0 : o->class, o == NULL ? -1 : o->gpu, status);
}

static void alloc(uint8_t *p, uint32_t size)
{
    uint32_t handle = get32(p, 8), class = get32(p, 12), status = allocate(get32(p, 0), get32(p, 4), &handle, class, get_pointer(p, 16));
    put32(p, 8, handle);
    if (class == CLASS_ROOT || class == 0)
        put32(p, 0, handle);
    put32(p, size >= 48 ? 40 : 28, status); // with rights, or without
    say("alloc class %x = %x: %x\n", class, handle, status);
}

static int escape(uint32_t number, uint32_t size, uint8_t *p)
{
    switch (number) {
    case ESCAPE_CHECK_VERSION:
        return check_version(p);
    case ESCAPE_SYS_PARAMS:
        put64(p, 0, 0x8000000); // size of a block of memory
        break;
    case ESCAPE_CARD_INFO:
        list_cards(p, size);
        break;
    case ESCAPE_NUMA_INFO:
        memset(p, 0, size);
        put32(p, 0, 0xffffffff); // no node
        break;
    case ESCAPE_CONTROL:
        control(p);
        break;
    case ESCAPE_ALLOC:
        alloc(p, size);
        break;
    case ESCAPE_FREE:
        release(get32(p, 0), get32(p, 8));
        put32(p, 12, OK);
        break;
    case ESCAPE_DUP_OBJECT:
        put32(p, 8, duplicate(get32(p, 0), get32(p, 4), get32(p, 8), find_object(get32(p, 12), get32(p, 16))));
        put32(p, 24, OK);
        break;
    case ESCAPE_ALLOC_OS_EVENT:
    case ESCAPE_FREE_OS_EVENT:
        put32(p, 12, OK);
        break;
    case ESCAPE_ALLOC_MEMORY:
    case ESCAPE_MAP_MEMORY:
        put32(p, 40, OK);
        break;
    case ESCAPE_UNMAP_MEMORY:
        put32(p, 24, OK);
        break;
    case ESCAPE_REGISTER_FD:
    case ESCAPE_ATTACH_GPUS:
    case ESCAPE_VID_HEAP:
        break;
    default:
        say("escape %x of %u bytes: unknown\n", number, size);
    }
    return 0;
}

int answer_ioctl(struct node node, unsigned long request, void *argument)
{
    if (node.kind == UVM) { // its status is 0 in what the libraries pass
        if (request == 0x30000001) // UVM_INITIALIZE
            put32(argument, 8, OK);
        return 0;
    }
    pthread_mutex_lock(&lock);
    int answer = escape(request & 0xff, (request >> 16) & 0x3fff, argument);
    pthread_mutex_unlock(&lock);
    return answer;
}
