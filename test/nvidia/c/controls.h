// What controls.c and the answers share.
#ifndef CONTROLS_H
#define CONTROLS_H
#include "machine.h"
#include "bytes.h"

// A call: gpu is that of the object, or what a MIG device has of it; slice is the MIG device, NULL for none.
struct call {
    const struct object *object;
    const struct gpu *gpu;
    const struct slice *slice;
    uint8_t *p;
    uint32_t size;
};

// answer writes the answer over the parameters and returns the resource manager's status.
typedef uint32_t answer(const struct call *c);

// control_machine.c
answer build_version, gpu_ids, attach_ids, active_devices, id_info, init_status, device_ids, pci_info, uuid_info, uuid_from_id,
    drain_state, memop_enable, address_space, handle_info, class_list, class_list_by_pointer,
    one, persistence;
// write_uuid returns the number of bytes, with the zero of a text.
uint32_t write_uuid(const struct gpu *g, uint8_t *to, uint32_t flags);

// control_gpu.c
answer gpu_name, gpu_uuid, gpu_id, bus_pci_info, gpu_info, memory_info, bus_info, graphics_info, architecture_info,
    bar_info, engines, gpc_mask, tpc_mask, floorsweeping, multiprocessor_order, copy_engines, compute_mode, process_ids,
    process_info, thermal, clock_domains, load, performance_state, slowed_for, power_monitor, power, clocks;

// control_mig.c
answer active_instances, gpu_instances, instance_sizes, compute_sizes, compute_instance_ids, compute_instances,
    compute_instance_uuid;

#endif
