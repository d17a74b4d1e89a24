#include "format/archive.h"

#include <string.h>

#define BEGINS(what) "the body begins as " what " and is stored as its bytes, not as arrays; "
#define MEANT "?format=raw says that the bytes are meant"

static const struct {
    const char *begin;
    size_t n;
    const char *warning;
} forms[] = {
    {"PK\3\4", 4,
     BEGINS("a zip archive (.npz, .pt)") "send the arrays in it as .npy or safetensors if these are meant; " MEANT},
    {"PK\5\6", 4, BEGINS("an empty zip archive") MEANT},
    {"\x1f\x8b\x08", 3, BEGINS("a gzip file") "Content-Encoding: gzip has it decoded; " MEANT},
    {"\x28\xb5\x2f\xfd", 4, BEGINS("a zstd file") "Content-Encoding: zstd has it decoded; " MEANT},
    {"\x89HDF\r\n\x1a\n", 8, BEGINS("an HDF5 file") "send its arrays as .npy or safetensors; " MEANT},
    {"GGUF", 4, BEGINS("a GGUF file") "send its tensors as safetensors; " MEANT},
};

/* Two bytes would often be those of numbers: the first operation is checked, too. From protocol 4 on it is a frame,
 * whose length has eight bytes. torch.save() wrote a long number first, before it wrote archives. */
static int is_pickle(const unsigned char *p, size_t n) {
    if (n < 4 || p[0] != 0x80)
        return 0;
    if (p[1] == 4 || p[1] == 5)
        return p[2] == 0x95 && n >= 11 && p[9] == 0 && p[10] == 0;
    return (p[1] == 2 || p[1] == 3) && p[2] != '\0' && strchr("](})cXUBCKMJG\x8a", p[2]) != NULL;
}

const char *gb_archive_warning(const void *data, size_t n) {
    size_t i;

    for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (n >= forms[i].n && memcmp(data, forms[i].begin, forms[i].n) == 0)
            return forms[i].warning;
    return is_pickle(data, n) ? BEGINS("a pickle (.pkl, .pt)") "send the arrays in it as .npy or safetensors if these "
                                                               "are meant; " MEANT
                              : NULL;
}
