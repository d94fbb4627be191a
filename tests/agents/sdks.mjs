// JavaScript SDKs through a whole turn with a tool: question, call, its result, answer. In node:
// `node sdks.mjs NAME URL`; in a browser `answered` is imported.

const QUESTION = "How much is it?";
const KEY = { apiKey: "unused", dangerouslyAllowBrowser: true };
const NUMBER = { type: "number" };
const TOOL = {
  name: "add",
  description: "Add two numbers",
  parameters: { type: "object", properties: { a: NUMBER, b: NUMBER }, required: ["a", "b"] },
};
const add = ({ a, b }) => String(a + b);

const SDKS = {
  async "openai-chat"(url) {
    const { default: OpenAI } = await import("openai");
    const runner = new OpenAI({ baseURL: `${url}/v1`, ...KEY }).chat.completions.runTools({
      model: "tiny",
      stream: true,
      messages: [{ role: "user", content: QUESTION }],
      tools: [{ type: "function", function: { ...TOOL, function: add, parse: JSON.parse } }],
    });
    return runner.finalContent();
  },

  async "openai-responses"(url) {
    const { default: OpenAI } = await import("openai");
    const client = new OpenAI({ baseURL: `${url}/v1`, ...KEY });
    const tools = [{ type: "function", strict: false, ...TOOL }];
    const input = [{ role: "user", content: QUESTION }];
    for (;;) {
      const asked = { model: "tiny", input, tools, store: false };
      const { output, output_text } = await client.responses.stream(asked).finalResponse();
      const calls = output.filter((item) => item.type === "function_call");
      if (!calls.length) return output_text;
      const results = calls.map(({ call_id, arguments: given }) => {
        return { type: "function_call_output", call_id, output: add(JSON.parse(given)) };
      });
      input.push(...output, ...results);
    }
  },

  async anthropic(url) {
    const { default: Anthropic } = await import("@anthropic-ai/sdk");
    const client = new Anthropic({ baseURL: url, ...KEY });
    const { parameters, ...named } = TOOL;
    const tools = [{ ...named, input_schema: parameters }];
    const messages = [{ role: "user", content: QUESTION }];
    for (;;) {
      const asked = { model: "tiny", max_tokens: 200, messages, tools };
      const { content } = await client.messages.stream(asked).finalMessage();
      const uses = content.filter((block) => block.type === "tool_use");
      if (!uses.length) return content.map((block) => block.text).join("");
      const results = uses.map(({ id, input }) => {
        return { type: "tool_result", tool_use_id: id, content: add(input) };
      });
      messages.push({ role: "assistant", content }, { role: "user", content: results });
    }
  },

  async "ai-responses"(url) {
    const { createOpenAI } = await import("@ai-sdk/openai");
    const model = createOpenAI({ baseURL: `${url}/v1`, apiKey: "unused" })("tiny");
    const { generateText } = await import("ai");
    const asked = await withTool(model);
    return (await generateText({ ...asked, providerOptions: { openai: { store: false } } })).text;
  },

  async "ai-compatible"(url) {
    const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
    const model = createOpenAICompatible({ name: "specadapt", baseURL: `${url}/v1` })("tiny");
    const { streamText } = await import("ai");
    return streamText(await withTool(model)).text;
  },
};

async function withTool(model) {
  const { jsonSchema, stepCountIs, tool } = await import("ai");
  const inputSchema = jsonSchema(TOOL.parameters);
  const tools = { add: tool({ description: TOOL.description, inputSchema, execute: add }) };
  return { model, prompt: QUESTION, tools, stopWhen: stepCountIs(3) };
}

export const answered = (name, url) => SDKS[name](url);

if (globalThis.process?.argv) console.log(await answered(...process.argv.slice(2)));
