/* The .npy header: any text is refused, or gives a shape that survives writing and parsing its header again. */
#include <string.h>

#include "format/npy.h"
#include "fuzz.h"

const char *const gb_fuzz_seeds[] = {
    "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }  \n",
    "{'descr': '|u1', 'fortran_order': False, 'shape': (7,), }\n",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (), }\n",
    "{'shape': (1, 0, 18446744073709551615), 'fortran_order': True, 'descr': '>i2'}\n",
    "{u'descr': u'<d', u'fortran_order': False, u'shape': (4,), }\n",
    "{'descr': 'float64', 'fortran_order': False, 'shape': (4,), }\n",
    "{\"descr\": [('a', '<i4'), ('b', '|O')], 'fortran_order': False, 'shape': (2L, 2L)}\n",
    NULL,
};

static void check_round_trip(const struct gb_npy *npy) {
    char header[GB_NPY_WRITE_MAX];
    struct gb_npy again;
    struct gb_error err = GB_ERROR_INIT;
    size_t n = gb_npy_write_header(npy->dtype, &npy->shape, header);
    unsigned i;

    FUZZ_ASSERT(npy->shape.dims <= GB_DIMS_MAX);
    if (n == 0)
        return;
    FUZZ_ASSERT(n % 64 == 0 && gb_npy_parse_header(header, n, &again, &err) == 0);
    FUZZ_ASSERT(again.dtype == npy->dtype && again.shape.dims == npy->shape.dims);
    for (i = 0; i < npy->shape.dims; i++)
        FUZZ_ASSERT(again.shape.dim[i] == npy->shape.dim[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_npy npy;
    size_t bytes;
    char *file;

    if (size > 65535)
        return 0;
    if (size >= GB_NPY_PREFIX)
        gb_npy_header_bytes(data, &bytes, &err);
    err = GB_ERROR_INIT;
    file = malloc(10 + size);
    FUZZ_ASSERT(file != NULL);
    memcpy(file, GB_NPY_MAGIC "\x01\x00", 8);
    file[8] = (char)(size & 0xff);
    file[9] = (char)(size >> 8);
    memcpy(file + 10, data, size);
    if (gb_npy_parse_header(file, 10 + size, &npy, &err) == 0)
        check_round_trip(&npy);
    else
        FUZZ_ASSERT(err.code == GB_ERR_UNSUPPORTED_ARRAY);
    free(file);
    return 0;
}
