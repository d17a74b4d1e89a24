#include "backend/probe.h"

#include <string.h>

#ifdef HAVE_CUDA
#include "backend/cuda/cuda.h"
#endif

int gb_probe_main(int argc, char **argv) {
#ifdef HAVE_CUDA
    if (argc > 0 && strcmp(argv[0], GB_CUDA_PROBE) == 0)
        return gb_cuda_probe_main(argc, argv);
#endif
    (void)argc;
    (void)argv;
    return -1;
}
