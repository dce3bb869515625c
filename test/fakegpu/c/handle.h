// What the two halves of the fake library share: nvml.c (library, handles, identity, load) and nvml_more.c (health, MIG, links, processes, events).
#ifndef FAKEGPU_HANDLE_H
#define FAKEGPU_HANDLE_H

#include <nvml.h>

#include "state.h"

#define TRY(call)                     \
    do {                              \
        nvmlReturn_t tried = (call);  \
        if (tried != NVML_SUCCESS)    \
            return tried;             \
    } while (0)

#pragma GCC visibility push(hidden)

struct nvmlDevice_st {
    int gpu, mig; // mig < 0: the whole device
};

extern struct nvmlDevice_st devices[MAX_GPUS][MAX_MIG + 1]; // [gpu][0] is the whole device, [gpu][j+1] its MIG device j

// Every call begins with one of these: initialised? a valid handle? told to hang or to fail? lost? a whole device?
nvmlReturn_t enter(const char *function);
nvmlReturn_t enter_handle(const char *function, nvmlDevice_t d);
nvmlReturn_t enter_any(const char *function, nvmlDevice_t d);
nvmlReturn_t enter_whole(const char *function, nvmlDevice_t d);

nvmlReturn_t number(nvmlDevice_t d, const char *key, long long *out);
nvmlReturn_t text(nvmlDevice_t d, const char *key, char out[TEXT]);
nvmlReturn_t fill_pci(const char *id, unsigned int device_id, nvmlPciInfo_t *out);
bool splits(int gpu); // MIG mode is on
void sleep_ms(long long ms);

#pragma GCC visibility pop

// A reading of a whole device that is one number in one file.
#define READING(function, type, key)                        \
    nvmlReturn_t function(nvmlDevice_t device, type *out)   \
    {                                                       \
        long long value;                                    \
        TRY(enter_whole(__func__, device));                 \
        if (out == NULL)                                    \
            return NVML_ERROR_INVALID_ARGUMENT;             \
        TRY(number(device, key, &value));                   \
        *out = (type)value;                                 \
        return NVML_SUCCESS;                                \
    }

#endif
