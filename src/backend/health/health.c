#include "backend/health/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct gb_health_reader {
    enum gb_health_policy policy;
    char *root;
    struct gb_nvml *nvml; /* NULL: asked for again each time, as a driver may come later */
    char no_nvml[GB_HEALTH_REASON_SIZE];
};

int gb_health_policy_parse(const char *word, enum gb_health_policy *ret, struct gb_error *err) {
    static const char *const words[GB_HEALTH_POLICIES] = {"auto", "nvml", "system", "none"};
    int i;

    for (i = 0; i < GB_HEALTH_POLICIES; i++) {
        if (strcmp(word, words[i]) == 0) {
            *ret = (enum gb_health_policy)i;
            return 0;
        }
    }
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the health of devices is read by auto, nvml, system or none");
}

struct gb_health_reader *gb_health_reader_new(enum gb_health_policy policy, const char *root) {
    struct gb_health_reader *reader = calloc(1, sizeof(*reader));

    if (!reader)
        return NULL;
    reader->policy = policy;
    reader->root = strdup(root ? root : "");
    if (!reader->root) {
        free(reader);
        return NULL;
    }
    return reader;
}

void gb_health_reader_free(struct gb_health_reader *reader) {
    if (!reader)
        return;
    gb_nvml_close(reader->nvml);
    free(reader->root);
    free(reader);
}

static bool real(const struct gb_device_rec *device) {
    return strncmp(device->uuid, "HOST-", 5) != 0;
}

static void read_nvml(struct gb_health_reader *reader, const struct gb_device_rec *device, struct gb_health *ret) {
    unsigned i;

    if (!reader->nvml)
        reader->nvml = gb_nvml_open(reader->no_nvml);
    if (!reader->nvml) {
        gb_health_clear(ret, reader->no_nvml);
        return;
    }
    gb_nvml_read(reader->nvml, device->uuid, ret);
    for (i = 0; i < ret->process_count; i++)
        gb_health_process_name(reader->root, ret->processes[i].pid, ret->processes[i].name);
}

static bool wants_system(enum gb_health_policy policy, const struct gb_device_rec *device) {
    return policy == GB_HEALTH_ONLY_SYSTEM || (policy == GB_HEALTH_AUTO && device->integrated && real(device));
}

void gb_health_read(struct gb_health_reader *reader, const struct gb_device_rec *device, struct gb_health *ret) {
    enum gb_health_policy policy = reader->policy;

    gb_health_clear(ret, "");
    if (policy == GB_HEALTH_OFF)
        gb_health_clear(ret, "the daemon was told not to look");
    else if (policy == GB_HEALTH_AUTO && !real(device))
        gb_health_clear(ret, "a simulated device has neither temperature nor clocks");
    else if (policy != GB_HEALTH_ONLY_SYSTEM)
        read_nvml(reader, device, ret);
    if (wants_system(policy, device)) {
        bool found = gb_health_system_read(reader->root, ret);

        if (found && ret->source == GB_HEALTH_NONE)
            ret->source = GB_HEALTH_SYSTEM;
        else if (!found && ret->reason[0] == '\0' && ret->source == GB_HEALTH_NONE)
            snprintf(ret->reason, sizeof(ret->reason), "the kernel shows neither load nor temperature of a GPU");
    }
    ret->at_us = gb_wall_us();
}
