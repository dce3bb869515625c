// Fields of the kernel driver's structures: little endian, at a number of bytes from the begin.
#ifndef BYTES_H
#define BYTES_H
#include <stdint.h>
#include <string.h>

static inline uint32_t get32(const uint8_t *at, uint32_t offset)
{
    uint32_t value;
    memcpy(&value, at + offset, sizeof value);
    return value;
}
static inline uint8_t *get_pointer(const uint8_t *at, uint32_t offset)
{
    uint64_t value;
    memcpy(&value, at + offset, sizeof value);
    return (uint8_t *)(uintptr_t)value;
}
static inline void put8(uint8_t *at, uint32_t offset, uint32_t value) { at[offset] = (uint8_t)value; }
static inline void put16(uint8_t *at, uint32_t offset, uint32_t value)
{
    uint16_t narrow = (uint16_t)value;
    memcpy(at + offset, &narrow, sizeof narrow);
}
static inline void put32(uint8_t *at, uint32_t offset, uint32_t value) { memcpy(at + offset, &value, sizeof value); }
static inline void put64(uint8_t *at, uint32_t offset, uint64_t value) { memcpy(at + offset, &value, sizeof value); }

#endif
