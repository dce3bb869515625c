// What the parts of the fake nvidia-smi share: smi.c (options, lists), smi_value.c (readings as text), smi_xml.c (-q -x).
#ifndef FAKEGPU_SMI_H
#define FAKEGPU_SMI_H

#include <nvml.h>
#include <stdio.h>

#include "state.h"

// A device picked by -i, or every one. handle is NULL when the driver gives none.
typedef struct {
    unsigned int index;
    nvmlDevice_t handle;
    nvmlReturn_t why; // of a missing handle
} picked_t;

// One process on a device. bytes is ~0ULL when the driver does not say.
typedef struct {
    nvmlProcessInfo_t info;
    char type[8]; // "C", "G", "C+G", "M+C"
} running_t;

enum { ARGS = 4096 };

// The value of a --query-gpu field and its unit ("" for none). Unknown fields are not found at all.
bool value_known(const char *field, const char **unit);
nvmlReturn_t value_read(const char *field, nvmlDevice_t device, char out[TEXT]);

int running(nvmlDevice_t device, running_t *out); // at most MAX_PROCESSES; compute ones first
void process_name(unsigned int pid, bool arguments, char out[TEXT]);

void xml_print(const picked_t *devices, int count);
#endif
