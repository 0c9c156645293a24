// Embedded data: JSON, or JSON that is compressed and written as base64.

export async function unpack(text, encoding) {
  return encoding === 'json' ? text : new TextDecoder().decode(await inflate(text));
}

async function inflate(base64) {
  const bytes = Uint8Array.from(atob(base64.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
