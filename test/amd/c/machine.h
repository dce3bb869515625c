// The invented machine, as far as the pretended kernel drivers need it. README.md describes its file.
#ifndef MACHINE_H
#define MACHINE_H
#include <stdint.h>

enum { MAX_GPUS = 16 };

struct gpu {
    int minor;       // of its render node
    uint32_t id;     // KFD's name for it
    uint32_t device; // PCI device
    uint64_t memory; // bytes
    int denied;      // errno of open(2) on its render node
};
extern struct gpu gpus[MAX_GPUS];
extern int gpu_count;

// The kinds of its device files.
enum { KFD = 1, RENDER };

// kfd.c and render.c: 0, or an errno
int answer_kfd(unsigned number, uint8_t *p);
int answer_render(const struct gpu *gpu, unsigned number, uint8_t *p);

#endif
