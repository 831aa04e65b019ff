// The README's snippet as a program. SNIPPET and RUNTIME are replaced.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    BLOCK_ON(async {
        SNIPPET
        println!("the reply: {reply:?}");
        Ok(())
    })
}
