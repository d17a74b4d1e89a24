/* The GPU's driver on this machine, looked at without CUDA at link time. */
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/doctor.h"

#define KERNEL_FILE "/proc/driver/nvidia/version"
#define NVIDIA 0x10de /* as a vendor on the PCI bus */
#define DISPLAY 0x03  /* the class of its devices that draw or calculate */

/* What the PCI bus says of one of its devices: a number in a file. */
static unsigned long pci_number(const char *device, const char *file) {
    char path[320];
    char text[32] = "";
    FILE *in;

    snprintf(path, sizeof path, "%s/%s", device, file);
    in = fopen(path, "re");
    if (in == NULL)
        return 0;
    if (fgets(text, sizeof text, in) == NULL)
        text[0] = '\0';
    fclose(in);
    return strtoul(text, NULL, 16);
}

static bool on_the_bus(void) {
    glob_t found = {0};
    bool gpu = false;
    size_t i;

    if (glob("/sys/bus/pci/devices/*", 0, NULL, &found) == 0)
        for (i = 0; i < found.gl_pathc && !gpu; i++)
            gpu = pci_number(found.gl_pathv[i], "vendor") == NVIDIA &&
                  pci_number(found.gl_pathv[i], "class") >> 16 == DISPLAY;
    globfree(&found);
    return gpu;
}

bool gb_cli_doctor_has_gpu(void) {
    static const char *const signs[] = {KERNEL_FILE, "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvhost-gpu"};
    size_t i;

    for (i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (access(signs[i], F_OK) == 0)
            return true;
    return on_the_bus();
}

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
    static const char *const checks[] = {"kernel driver", "device files", "libcuda"};
    size_t i;

    if (!doctor->gpu) {
        for (i = 0; i < sizeof checks / sizeof checks[0]; i++)
            gb_cli_doctor_skip(doctor, checks[i], "no GPU of NVIDIA is to be seen on this machine");
        return;
    }
    check_kernel(doctor);
    check_nodes(doctor);
    check_library(doctor);
}
