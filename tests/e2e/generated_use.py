"""generated_use.py URL: uses a daemon by the client that test_generated_client makes of its document."""
import io
import sys

from gpubuf_generated import Client
from gpubuf_generated.api.buffers import create_buffer, delete_buffer, get_buffer, list_buffers
from gpubuf_generated.api.data import get_data, put_data
from gpubuf_generated.api.sessions import create_session, delete_session, list_sessions
from gpubuf_generated.models import Buffer, BufferCreate, BufferList, Problem, Session, SessionCreate, SessionList
from gpubuf_generated.types import File

DATA = bytes(range(256)) * 16


def use(client: Client) -> None:
    session = create_session.sync(client=client, body=SessionCreate(name="train"))
    assert isinstance(session, Session) and session.name == "train" and session.buffers == 0
    listed = list_sessions.sync(client=client)
    assert isinstance(listed, SessionList) and "train" in [item.name for item in listed.items]

    made = create_buffer.sync("train", client=client, body=BufferCreate(name="grads", bytes_=16))
    assert isinstance(made, Buffer) and made.bytes_ == 16 and made.kind == "device"
    put = put_data.sync("train", "weights", client=client, body=File(payload=io.BytesIO(DATA)), dtype="float32",
                        shape="32,32")
    assert isinstance(put, Buffer) and put.dtype == "float32" and put.shape == [32, 32] and put.bytes_ == len(DATA)
    got = get_data.sync("train", "weights", client=client)
    assert isinstance(got, File) and got.payload.read() == DATA
    part = get_data.sync("train", "weights", client=client, offset=4, length=8)
    assert isinstance(part, File) and part.payload.read() == DATA[4:12]

    buffers = list_buffers.sync("train", client=client)
    assert isinstance(buffers, BufferList) and [item.name for item in buffers.items] == ["grads", "weights"]
    assert delete_buffer.sync_detailed("train", "weights", client=client).status_code == 204
    gone = get_buffer.sync("train", "weights", client=client)
    assert isinstance(gone, Problem) and gone.code == "buffer_not_found" and gone.status == 404
    assert delete_session.sync_detailed("train", client=client).status_code == 204


if __name__ == "__main__":
    use(Client(base_url=sys.argv[1], raise_on_unexpected_status=True))
