// The invented machine, and what every part of the pretended kernel driver needs. README.md describes its file.
#ifndef MACHINE_H
#define MACHINE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_GPUS = 16, MAX_PROCESSES = 16, MAX_SLICES = 8, MAX_TEXT = 64 };

// process is one that uses the GPU. kind is C (compute) or G (graphics); the instances are those of a MIG device, or ANY.
struct process {
    uint32_t pid, mib, gpu_instance, compute_instance;
    char kind;
};

enum { ANY = -1 };

struct slice {
    uint32_t gpu_instance, compute_instance, multiprocessors, gpcs;
    uint64_t memory; // bytes
    uint8_t uuid[16];
    char text[MAX_TEXT]; // the UUID as MIG-… ends
};

struct architecture;

struct gpu {
    uint32_t bus, device, subsystem, id; // id is what the resource manager calls it
    uint8_t uuid[16];
    char text[MAX_TEXT], name[MAX_TEXT];
    const struct architecture *architecture;
    uint64_t memory; // bytes
    uint32_t used;   // MiB
    uint32_t multiprocessors, celsius, percent, memory_percent, milliwatts, performance_state, compute_mode, persistent;
    enum { NO_MIG, MIG_ON, MIG_OFF } mig;
    uint32_t denied; // errno of open(2) on its device file
    uint32_t status; // of every control: 0xf lost, 0x62 needs a reset
    struct process processes[MAX_PROCESSES];
    int process_count;
    struct slice slices[MAX_SLICES];
    int slice_count;
};

extern struct gpu gpus[MAX_GPUS];
extern int gpu_count;
extern const char *driver_version; // of the pretended kernel module

// The kinds of its device files.
enum { CONTROL = 1, DEVICE, UVM, CAPABILITY };

// controls.c
struct object; // of the resource manager
uint32_t answer_control(const struct object *object, uint32_t command, uint8_t *parameters, uint32_t size);

// An object that a library has made: a handle for a client, a device, a part of a MIG device. gpu and the instances are -1
// where it has none.
struct object {
    uint32_t client, handle, parent, class;
    int gpu, gpu_instance, compute_instance;
};

const struct object *find_object(uint32_t client, uint32_t handle);
const struct object *objects_of(int *count);
// slice_of is the MIG device with these instances; compute_instance may be ANY.
const struct slice *slice_of(const struct gpu *gpu, int gpu_instance, int compute_instance);

// The resource manager's numbers.
enum {
    OK = 0,
    INVALID_ARGUMENT = 0x1f,
    NOT_SUPPORTED = 0x56,
    OBJECT_NOT_FOUND = 0x57,
};

struct architecture {
    const char *name;
    uint32_t architecture, implementation, compute; // compute capability: 0x802 is 8.2
    uint16_t classes[5];                            // compute, graphics, copy, user mode, channel
};
const struct architecture *architecture_named(const char *name);

#endif
