// What the resource manager answers. A row of the table is one control: its number, its name in
// NVIDIA/open-gpu-kernel-modules (src/common/sdk/nvidia/inc/ctrl), and the function that answers. Names in brackets are not
// in the public headers: they say what the field was seen to mean, by filling it with numbers and looking at nvidia-smi.
// A control without a row leaves its parameters as they are, says OK and is written to the log.
#include "controls.h"
#include "preload.h"

// whose says for what a control is asked: the machine, a GPU, or on a GPU in MIG mode only a client that has subscribed to a
// part of it, which is then described.
enum whose { MACHINE, GPU, PART };

static const struct control {
    uint32_t command;
    const char *name;
    enum whose whose;
    uint32_t (*answer)(const struct call *);
} controls[] = {
    {0x00000101, "NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION", MACHINE, build_version},
    {0x00000201, "NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS", MACHINE, gpu_ids},
    {0x00000202, "NV0000_CTRL_CMD_GPU_GET_ID_INFO", MACHINE, id_info},
    {0x00000203, "NV0000_CTRL_CMD_GPU_GET_INIT_STATUS", MACHINE, init_status},
    {0x00000204, "NV0000_CTRL_CMD_GPU_GET_DEVICE_IDS", MACHINE, device_ids},
    {0x00000205, "NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2", MACHINE, id_info},
    {0x00000214, "NV0000_CTRL_CMD_GPU_GET_PROBED_IDS", MACHINE, gpu_ids},
    {0x00000215, "NV0000_CTRL_CMD_GPU_ATTACH_IDS", MACHINE, attach_ids},
    {0x0000021b, "NV0000_CTRL_CMD_GPU_GET_PCI_INFO", MACHINE, pci_info},
    {0x00000274, "NV0000_CTRL_CMD_GPU_GET_UUID_INFO", MACHINE, uuid_info},
    {0x00000275, "NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID", MACHINE, uuid_from_id},
    {0x00000279, "NV0000_CTRL_CMD_GPU_QUERY_DRAIN_STATE", MACHINE, drain_state},
    {0x0000027b, "NV0000_CTRL_CMD_GPU_GET_MEMOP_ENABLE", MACHINE, memop_enable},
    {0x00000288, "NV0000_CTRL_CMD_GPU_GET_ACTIVE_DEVICE_IDS", MACHINE, active_devices}, // since 570
    {0x00000d01, "NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE", MACHINE, address_space},
    {0x00000d02, "NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO", MACHINE, handle_info},
    {0x00800280, "NV0080_CTRL_CMD_GPU_GET_NUM_SUBDEVICES", GPU, one},
    {0x00800288, "NV0080_CTRL_CMD_GPU_QUERY_SW_STATE_PERSISTENCE", GPU, persistence},
    {0x00800201, "NV0080_CTRL_CMD_GPU_GET_CLASSLIST", GPU, class_list_by_pointer}, // of 470
    {0x00800292, "NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2", GPU, class_list},
    {0x20800102, "NV2080_CTRL_CMD_GPU_GET_INFO_V2", GPU, gpu_info},
    {0x20800110, "NV2080_CTRL_CMD_GPU_GET_NAME_STRING", GPU, gpu_name},
    {0x20800131, "NV2080_CTRL_CMD_GPU_QUERY_COMPUTE_MODE_RULES", GPU, compute_mode},
    {0x20800142, "NV2080_CTRL_CMD_GPU_GET_ID", GPU, gpu_id},
    {0x2080014a, "NV2080_CTRL_CMD_GPU_GET_GID_INFO", GPU, gpu_uuid},
    {0x20800170, "NV2080_CTRL_CMD_GPU_GET_ENGINES_V2", GPU, engines},
    {0x20800175, "NV2080_CTRL_CMD_GPU_GET_PARTITIONS", GPU, gpu_instances},
    {0x20800185, "NV2080_CTRL_CMD_GPU_DESCRIBE_PARTITIONS", GPU, instance_sizes},
    {0x2080018b, "NV2080_CTRL_CMD_GPU_GET_ACTIVE_PARTITION_IDS", GPU, active_instances},
    {0x2080018d, "NV2080_CTRL_CMD_GPU_GET_PIDS", GPU, process_ids},
    {0x2080018e, "NV2080_CTRL_CMD_GPU_GET_PID_INFO", GPU, process_info},
    {0x208001a2, "NV2080_CTRL_CMD_GPU_GET_COMPUTE_PROFILES", GPU, compute_sizes},
    {0x20801201, "NV2080_CTRL_CMD_GR_GET_INFO", PART, graphics_info},
    {0x2080121b, "NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER", PART, multiprocessor_order},
    {0x20801227, "NV2080_CTRL_CMD_GR_GET_CAPS_V2", PART, NULL},
    {0x20801228, "NV2080_CTRL_CMD_GR_GET_INFO_V2", PART, NULL},
    {0x2080122a, "NV2080_CTRL_CMD_GR_GET_GPC_MASK", PART, gpc_mask},
    {0x2080122b, "NV2080_CTRL_CMD_GR_GET_TPC_MASK", PART, tpc_mask},
    {0x20801303, "NV2080_CTRL_CMD_FB_GET_INFO_V2", GPU, memory_info},
    {0x20801701, "NV2080_CTRL_CMD_MC_GET_ARCH_INFO", GPU, architecture_info},
    {0x20801801, "NV2080_CTRL_CMD_BUS_GET_PCI_INFO", GPU, bus_pci_info},
    {0x20801803, "NV2080_CTRL_CMD_BUS_GET_PCI_BAR_INFO", GPU, bar_info},
    {0x20801823, "NV2080_CTRL_CMD_BUS_GET_INFO_V2", GPU, bus_info},
    {0x20802a0a, "NV2080_CTRL_CMD_CE_GET_ALL_CAPS", GPU, copy_engines},
    {0x20803801, "NV2080_CTRL_CMD_GRMGR_GET_GR_FS_INFO", GPU, floorsweeping}, // since 580
    {0x20808159, "[clocks]", GPU, clocks},
    {0x20808513, "[temperatures, a list of instructions]", GPU, thermal},
    {0x20809009, "[clock domains]", GPU, clock_domains},
    {0x2080a068, "[performance state]", GPU, performance_state},
    {0x2080a080, "[why clocks are lowered]", GPU, slowed_for},
    {0x2080a097, "[load of GPU and memory]", GPU, load},
    {0x2080a612, "[power monitor]", GPU, power_monitor},
    {0x2080a613, "[power]", GPU, power},
    {0xc6370103, "NVC637_CTRL_CMD_EXEC_PARTITIONS_GET", GPU, compute_instances},
    {0xc6370104, "NVC637_CTRL_CMD_EXEC_PARTITIONS_GET_ACTIVE_IDS", GPU, compute_instance_ids},
    {0xc6380101, "NVC638_CTRL_CMD_GET_UUID", GPU, compute_instance_uuid},
};

// subscribed is the MIG device whose objects hang below this object, or that it is itself a part of.
static const struct slice *subscribed(const struct object *o)
{
    enum { CLASS_GPU_INSTANCE = 0xc637, CLASS_COMPUTE_INSTANCE = 0xc638 };
    int count, gpu_instance = o->gpu_instance, compute_instance = o->compute_instance;
    const struct object *all = objects_of(&count);
    for (int i = 0; i < count; i++) {
        if (all[i].client != o->client || all[i].gpu != o->gpu)
            continue;
        if (all[i].class == CLASS_GPU_INSTANCE && all[i].parent == o->handle)
            gpu_instance = all[i].gpu_instance;
        if (all[i].class == CLASS_COMPUTE_INSTANCE) {
            const struct object *above = find_object(o->client, all[i].parent);
            if (above != NULL && above->parent == o->handle)
                compute_instance = all[i].compute_instance;
        }
    }
    return gpu_instance == ANY ? NULL : slice_of(&gpus[o->gpu], gpu_instance, compute_instance);
}

uint32_t answer_control(const struct object *object, uint32_t command, uint8_t *parameters, uint32_t size)
{
    const struct control *row = NULL;
    struct call c = {.object = object, .p = parameters, .size = size};
    struct gpu part;
    for (size_t i = 0; row == NULL && i < sizeof controls / sizeof *controls; i++)
        if (controls[i].command == command)
            row = &controls[i];
    if (object != NULL && object->gpu >= 0) {
        c.gpu = &gpus[object->gpu];
        if (c.gpu->status != OK)
            return c.gpu->status;
        c.slice = subscribed(object);
        if (c.gpu->mig == MIG_ON && c.slice == NULL && row != NULL && row->whose == PART)
            return OBJECT_NOT_FOUND;
        if (c.slice != NULL && (row == NULL || row->whose == PART || row->answer == memory_info)) { // what a MIG device has of it
            part = *c.gpu;
            part.memory = c.slice->memory;
            part.multiprocessors = c.slice->multiprocessors;
            c.gpu = &part;
        }
    }
    if (row == NULL || row->answer == NULL || (row->whose != MACHINE && c.gpu == NULL) || (row->whose == MACHINE && object == NULL)) {
        say("control %08x of %u bytes: %s\n", command, size, row == NULL ? "unknown" : row->name);
        return OK;
    }
    return row->answer(&c);
}
