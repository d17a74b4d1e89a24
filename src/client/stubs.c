/* Stands in for what is not written yet. */
#define STUB(name)                                                                                                     \
    int name(void);                                                                                                    \
    int name(void) {                                                                                                   \
        return -1;                                                                                                     \
    }

STUB(gpubuf_put)
STUB(gpubuf_get)
STUB(gpubuf_head)
STUB(gpubuf_tensors_put)
STUB(gpubuf_tensors_get)
STUB(gpubuf_upload_list)
STUB(gpubuf_upload_create)
STUB(gpubuf_upload_get)
STUB(gpubuf_upload_delete)
STUB(gpubuf_upload_part)
STUB(gpubuf_upload_complete)
STUB(gpubuf_upload_begin)
STUB(gpubuf_upload_append)
STUB(gpubuf_upload_offset)
STUB(gpubuf_map)
STUB(gpubuf_mapping_info_of)
STUB(gpubuf_mapping_wait)
STUB(gpubuf_mapping_alive)
STUB(gpubuf_mapping_poll_fd)
STUB(gpubuf_unmap)
STUB(gpubuf_upload_list_done)
void gbc_link_leave(void *link);
void gbc_link_leave(void *link) {
    (void)link;
}
