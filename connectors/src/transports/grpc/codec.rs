//! Frames to bytes and back: one allocation of the exact length, one copy out, none in.

use prost::Message;
use tidewire_core::transport::wire::Frame;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// What a stream allocates before its first message, and the number of bytes at which small frames stop being gathered
/// into one write.
fn buffers() -> BufferSettings {
    BufferSettings::new(4 * 1024, 32 * 1024)
}

/// The codec of the service.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameCodec;

impl Codec for FrameCodec {
    type Encode = Frame;
    type Decode = Frame;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for FrameCodec {
    type Item = Frame;
    type Error = Status;

    fn encode(&mut self, frame: Frame, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(frame.encoded_len());
        frame.encode_raw(buffer);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

impl Decoder for FrameCodec {
    type Item = Frame;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Frame>, Status> {
        let frame = Frame::decode(buffer);
        frame.map(Some).map_err(|error| Status::invalid_argument(format!("not a frame: {error}")))
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}
