/* The GPU's driver on this machine, looked at without CUDA at link time. */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/doctor.h"

#define KERNEL_FILE "/proc/driver/nvidia/version"

static void check_kernel(struct gb_cli_doctor *doctor) {
    bool good = access(KERNEL_FILE, R_OK) == 0;

    gb_cli_doctor_add(doctor, "kernel driver", good,
                      "install NVIDIA's kernel driver; a Jetson has another one, and needs none of this file", "%s: %s",
                      KERNEL_FILE, good ? "there" : strerror(errno));
}

static void check_nodes(struct gb_cli_doctor *doctor) {
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"};
    char detail[256] = "";
    size_t at = 0;
    size_t i;

    for (i = 0; i < sizeof nodes / sizeof nodes[0]; i++)
        if (access(nodes[i], R_OK | W_OK) != 0)
            at += (size_t)snprintf(detail + at, sizeof detail - at, "%s%s: %s", at > 0 ? "; " : "", nodes[i],
                                   strerror(errno));
    gb_cli_doctor_add(
        doctor, "device files", detail[0] == '\0',
        "load the driver (nvidia-modprobe -u -c 0), give the container its devices, or this user the right to "
        "them; on a machine where the first GPU has another number this is no fault",
        "%s", detail[0] == '\0' ? "may be read and written" : detail);
}

static void check_library(struct gb_cli_doctor *doctor) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*init)(unsigned) = NULL;
    int (*count)(int *) = NULL;
    int devices = 0;
    int rc;

    if (library == NULL) {
        gb_cli_doctor_add(
            doctor, "libcuda", false,
            "install the driver's user-space library, or give it to the container (the NVIDIA container toolkit)", "%s",
            dlerror());
        return;
    }
    *(void **)&init = dlsym(library, "cuInit");
    *(void **)&count = dlsym(library, "cuDeviceGetCount");
    rc = init != NULL && count != NULL ? init(0) : -1;
    if (rc == 0)
        rc = count(&devices);
    gb_cli_doctor_add(
        doctor, "libcuda", rc == 0 && devices > 0,
        "the library's version must fit the kernel driver's, and CUDA_VISIBLE_DEVICES must leave a device",
        "libcuda.so.1: CUDA says %d, %d devices", rc, devices);
    dlclose(library);
}

void gb_cli_doctor_driver(struct gb_cli_doctor *doctor) {
    check_kernel(doctor);
    check_nodes(doctor);
    check_library(doctor);
}
