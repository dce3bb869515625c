// A libcuda.so.1 that answers from the file `cuda_table` alone: it knows no rule of CUDA_VISIBLE_DEVICES, so that what is
// compared with it is compared with what was written down. The declarations are ours, as far as the functions here need
// them, after NVIDIA's "CUDA Driver API" (modules "Initialization", "Version Management", "Device Management", "Error Handling").
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "state.h"

typedef enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_STUB_LIBRARY = 34,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_SYSTEM_NOT_READY = 802,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
    CUDA_ERROR_UNKNOWN = 999,
} CUresult;
typedef int CUdevice;
typedef struct {
    char bytes[16];
} CUuuid;

enum { LINE = 65536, MAX_SEEN = MAX_GPUS * MAX_MIG };

typedef struct {
    char uuid[64], pci[32], parent[64]; // parent: of a MIG device, else the UUID again
} seen_t;

static seen_t seen[MAX_SEEN];
static int count;
static bool initialised;

// ---- the table

// "-" for a variable that is not set, else "=" and the value with %XX for what could be taken for a separator.
static void escaped(char out[LINE], const char *value)
{
    size_t n = 0;
    if (value == NULL) {
        strcpy(out, "-");
        return;
    }
    out[n++] = '=';
    for (const unsigned char *c = (const unsigned char *)value; *c != '\0' && n + 4 < LINE; c++) {
        if (*c > ' ' && *c < 0x7f && *c != '%' && *c != '#')
            out[n++] = (char)*c;
        else
            n += (size_t)snprintf(out + n, 4, "%%%02X", *c);
    }
    out[n] = '\0';
}

// "uuid,pci[,parent]" for each device, with ";" between them; "-" for none.
static bool parse_seen(char *text)
{
    char *rest = NULL;
    count = 0;
    if (strcmp(text, "-") == 0)
        return true;
    for (char *item = strtok_r(text, ";", &rest); item != NULL && count < MAX_SEEN; item = strtok_r(NULL, ";", &rest)) {
        seen_t *s = &seen[count++];
        int n = sscanf(item, "%63[^,],%31[^,],%63s", s->uuid, s->pci, s->parent);
        if (n < 2)
            return false;
        if (n == 2)
            strcpy(s->parent, s->uuid);
    }
    return true;
}

// Finds the row of this process's environment: "<visible> <order> <code> <devices>". What has no row is an error.
static CUresult look_up(void)
{
    static char line[2 * LINE], visible[LINE], order[LINE];
    escaped(visible, getenv("CUDA_VISIBLE_DEVICES"));
    escaped(order, getenv("CUDA_DEVICE_ORDER"));
    FILE *f = state_file("cuda_table");
    CUresult result = CUDA_ERROR_UNKNOWN;
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char *rest = NULL, *key = strtok_r(line, " \n", &rest), *second = strtok_r(NULL, " \n", &rest);
        char *code = strtok_r(NULL, " \n", &rest), *devices = strtok_r(NULL, " \n", &rest);
        if (devices == NULL || strcmp(key, visible) != 0 || strcmp(second, order) != 0)
            continue;
        if (parse_seen(devices))
            result = (CUresult)atoi(code);
        break;
    }
    if (f != NULL)
        fclose(f);
    return result;
}

// ---- every call: told to hang? told to fail? initialised? device there?

static CUresult told(const char *function, int device)
{
    long long value;
    while (state_rule("hang", function, device, &value)) {
        struct timespec t = {0, 10000000};
        if (value >= 0)
            t = (struct timespec){value / 1000, value % 1000 * 1000000};
        nanosleep(&t, NULL);
        if (value >= 0)
            break;
    }
    if (state_rule("fail", function, device, &value))
        return value < 0 ? CUDA_ERROR_UNKNOWN : (CUresult)value;
    return CUDA_SUCCESS;
}

static CUresult enter(const char *function, int device, const void *out)
{
    CUresult result = told(function, device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!initialised)
        return CUDA_ERROR_NOT_INITIALIZED;
    return out == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult enter_device(const char *function, CUdevice d, const void *out)
{
    CUresult result = enter(function, d, out);
    if (result == CUDA_SUCCESS && (d < 0 || d >= count))
        return CUDA_ERROR_INVALID_DEVICE;
    return result;
}

#define TRY(call)                                                                                                                  \
    do {                                                                                                                           \
        CUresult result_ = (call);                                                                                                 \
        if (result_ != CUDA_SUCCESS)                                                                                               \
            return result_;                                                                                                        \
    } while (0)

static CUresult copy(char *out, int length, const char *text)
{
    if (length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(out, (size_t)length, "%s", text);
    return CUDA_SUCCESS;
}

static CUresult copy_uuid(CUuuid *out, const char *text)
{
    const char *c = strchr(text, '-');
    int n = 0;
    for (; c != NULL && *c != '\0' && n < 16; n++) {
        unsigned int byte;
        while (*c == '-')
            c++;
        if (sscanf(c, "%2x", &byte) != 1)
            break;
        out->bytes[n] = (char)byte;
        c += 2;
    }
    return n == 16 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult cuInit(unsigned int flags)
{
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!state_open())
        return CUDA_ERROR_NO_DEVICE;
    TRY(told("cuInit", -1));
    if (!initialised) // the environment is read once
        TRY(look_up());
    initialised = true;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    char text[TEXT];
    int major, minor;
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!state_open() || !state_text(text, "cuda") || sscanf(text, "%d.%d", &major, &minor) != 2)
        return CUDA_ERROR_UNKNOWN;
    *version = 1000 * major + 10 * minor;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *out)
{
    TRY(enter(__func__, -1, out));
    *out = count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
    TRY(enter_device(__func__, ordinal, out));
    *out = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *out, int length, CUdevice d)
{
    char uuid[TEXT], name[TEXT], profile[TEXT] = "", whole[3 * TEXT];
    TRY(enter_device(__func__, d, out));
    snprintf(whole, sizeof whole, "Fake GPU");
    for (int i = 0; i < state_gpus(); i++) {
        if (!state_text(uuid, "gpus/%d/uuid", i) || strcmp(uuid, seen[d].parent) != 0 || !state_text(name, "gpus/%d/name", i))
            continue;
        snprintf(whole, sizeof whole, "%s", name);
        for (int j = 0; j < MAX_MIG; j++)
            if (state_text(uuid, "gpus/%d/mig/%d/uuid", i, j) && strcmp(uuid, seen[d].uuid) == 0 && state_text(profile, "gpus/%d/mig/%d/profile", i, j))
                snprintf(whole, sizeof whole, "%s MIG %s", name, profile);
    }
    return copy(out, length, whole);
}

CUresult cuDeviceGetUuid(CUuuid *out, CUdevice d)
{
    TRY(enter_device(__func__, d, out));
    return copy_uuid(out, seen[d].parent);
}

CUresult cuDeviceGetUuid_v2(CUuuid *out, CUdevice d)
{
    TRY(enter_device(__func__, d, out));
    return copy_uuid(out, seen[d].uuid);
}

CUresult cuDeviceGetPCIBusId(char *out, int length, CUdevice d)
{
    TRY(enter_device(__func__, d, out));
    return copy(out, length, seen[d].pci);
}

CUresult cuGetErrorName(CUresult code, const char **out)
{
#define NAME(code)                                                                                                                 \
    case code:                                                                                                                     \
        *out = #code;                                                                                                              \
        return CUDA_SUCCESS
    switch (code) {
        NAME(CUDA_SUCCESS);
        NAME(CUDA_ERROR_INVALID_VALUE);
        NAME(CUDA_ERROR_NOT_INITIALIZED);
        NAME(CUDA_ERROR_STUB_LIBRARY);
        NAME(CUDA_ERROR_NO_DEVICE);
        NAME(CUDA_ERROR_INVALID_DEVICE);
        NAME(CUDA_ERROR_SYSTEM_NOT_READY);
        NAME(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
        NAME(CUDA_ERROR_UNKNOWN);
    }
    *out = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}
