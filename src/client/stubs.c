/* Stands in for what is not written yet. */
#define STUB(name)                                                                                                     \
    int name(void);                                                                                                    \
    int name(void) {                                                                                                   \
        return -1;                                                                                                     \
    }

STUB(gpubuf_map)
STUB(gpubuf_mapping_info_of)
STUB(gpubuf_mapping_wait)
STUB(gpubuf_mapping_alive)
STUB(gpubuf_mapping_poll_fd)
STUB(gpubuf_unmap)
void gbc_link_leave(void *link);
void gbc_link_leave(void *link) {
    (void)link;
}
