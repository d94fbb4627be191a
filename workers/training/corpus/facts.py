"""Short questions from knowledge tables, definitions, lists and instructions."""

from __future__ import annotations

import random

from workers.training.corpus.lexicon import article, capital, listing
from workers.training.corpus.rows import Sample

# country, capital, continent, language, currency
_COUNTRIES = [
    tuple(line.split("/"))
    for line in """France/Paris/Europe/French/euro
Germany/Berlin/Europe/German/euro
Spain/Madrid/Europe/Spanish/euro
Italy/Rome/Europe/Italian/euro
Portugal/Lisbon/Europe/Portuguese/euro
Austria/Vienna/Europe/German/euro
Greece/Athens/Europe/Greek/euro
Poland/Warsaw/Europe/Polish/zloty
Sweden/Stockholm/Europe/Swedish/krona
Norway/Oslo/Europe/Norwegian/krone
Denmark/Copenhagen/Europe/Danish/krone
Hungary/Budapest/Europe/Hungarian/forint
Iceland/Reykjavik/Europe/Icelandic/krona
Turkey/Ankara/Asia/Turkish/lira
Japan/Tokyo/Asia/Japanese/yen
China/Beijing/Asia/Chinese/yuan
Thailand/Bangkok/Asia/Thai/baht
Vietnam/Hanoi/Asia/Vietnamese/dong
Indonesia/Jakarta/Asia/Indonesian/rupiah
Mongolia/Ulaanbaatar/Asia/Mongolian/tugrik
Egypt/Cairo/Africa/Arabic/pound
Morocco/Rabat/Africa/Arabic/dirham
Kenya/Nairobi/Africa/Swahili/shilling
Ghana/Accra/Africa/English/cedi
Nigeria/Abuja/Africa/English/naira
Ethiopia/Addis Ababa/Africa/Amharic/birr
Brazil/Brasilia/South America/Portuguese/real
Argentina/Buenos Aires/South America/Spanish/peso
Chile/Santiago/South America/Spanish/peso
Peru/Lima/South America/Spanish/sol
Colombia/Bogota/South America/Spanish/peso
Mexico/Mexico City/North America/Spanish/peso
Cuba/Havana/North America/Spanish/peso
Canada/Ottawa/North America/English/dollar
Australia/Canberra/Oceania/English/dollar
Ireland/Dublin/Europe/English/euro
Finland/Helsinki/Europe/Finnish/euro
Romania/Bucharest/Europe/Romanian/leu""".splitlines()
]
_ELEMENTS = [
    tuple(word.split("/"))
    for word in (
        "hydrogen/H/1 helium/He/2 lithium/Li/3 beryllium/Be/4 boron/B/5 carbon/C/6 nitrogen/N/7 "
        "oxygen/O/8 fluorine/F/9 neon/Ne/10 sodium/Na/11 magnesium/Mg/12 aluminium/Al/13 "
        "silicon/Si/14 phosphorus/P/15 sulfur/S/16 chlorine/Cl/17 argon/Ar/18 potassium/K/19 "
        "calcium/Ca/20 iron/Fe/26 nickel/Ni/28 copper/Cu/29 zinc/Zn/30 silver/Ag/47 tin/Sn/50 "
        "gold/Au/79 mercury/Hg/80 lead/Pb/82 uranium/U/92"
    ).split()
]
_YOUNG = (
    "dog/puppy cat/kitten cow/calf horse/foal sheep/lamb goat/kid pig/piglet hen/chick duck/duckling "
    "goose/gosling bear/cub lion/cub deer/fawn kangaroo/joey frog/tadpole swan/cygnet owl/owlet "
    "rabbit/kit seal/pup"
).split()
_OPPOSITES = (
    "hot/cold big/small fast/slow light/dark early/late high/low happy/sad open/closed full/empty "
    "hard/soft wet/dry old/young strong/weak near/far rich/poor loud/quiet clean/dirty thick/thin "
    "sweet/bitter wide/narrow deep/shallow brave/cowardly cheap/expensive true/false"
).split()
_PAST = (
    "go/went see/saw eat/ate write/wrote run/ran take/took give/gave speak/spoke think/thought "
    "buy/bought bring/brought teach/taught catch/caught fly/flew swim/swam drink/drank sing/sang "
    "begin/began break/broke choose/chose drive/drove fall/fell find/found forget/forgot grow/grew "
    "hide/hid know/knew leave/left lose/lost meet/met ride/rode sleep/slept steal/stole tear/tore "
    "throw/threw wear/wore win/won"
).split()
_PLURALS = (
    "child/children foot/feet tooth/teeth mouse/mice man/men woman/women person/people goose/geese "
    "leaf/leaves knife/knives wolf/wolves sheep/sheep fish/fish ox/oxen half/halves city/cities"
).split()
# term, class, what sets it apart
_DEFINITIONS = [
    tuple(line.split("|"))
    for line in """thermometer|an instrument|measures temperature|knowing how warm or cold something is
compass|an instrument|shows the direction of north|finding the way on land and sea
telescope|an instrument|makes distant objects look near|watching the moon, planets and stars
microscope|an instrument|makes tiny things look large|studying cells and small creatures
library|a place|keeps books that people can borrow|reading, learning and quiet work
hospital|a place|cares for people who are ill|healing and emergencies
volcano|a mountain|can throw out hot melted rock|showing how the earth works inside
glacier|a mass of ice|moves slowly down a valley|storing fresh water
desert|a dry region|gets very little rain|showing how life adapts to heat
island|a piece of land|has water on all sides|giving a home to special plants and animals
river|a stream of water|flows towards a sea or a lake|drinking water, fish and transport
bicycle|a vehicle|has two wheels and is moved by the legs|cheap and clean travel
battery|a device|stores electrical energy|running lamps, phones and toys
algorithm|a list of steps|solves a problem|telling a computer what to do
database|a collection of data|can be searched quickly|keeping and finding information
compiler|a program|turns source code into machine code|running programs fast
variable|a name in a program|stands for a value that can change|keeping values for later
function|a part of a program|does one task and can be called many times|reusing code
recipe|a list of instructions|tells how to cook a dish|getting the same dish every time
budget|a plan|says how much money comes in and goes out|spending with care
calendar|a table|shows the days, weeks and months of a year|planning ahead
dictionary|a book|lists words and explains their meaning|learning a language
orchestra|a large group of musicians|plays together under a conductor|playing symphonies
photosynthesis|a process|lets plants make sugar from light, water and air|feeding nearly all life
gravity|a force|pulls things towards each other|keeping planets in their orbits
democracy|a form of government|lets the people choose their leaders|giving citizens a voice
contract|an agreement|binds two or more people by law|making promises reliable
vaccine|a medicine|trains the body to fight a disease|preventing serious illness""".splitlines()
]
_CATEGORIES = {
    "fruits": "apple banana pear orange grape cherry mango peach plum lemon kiwi melon",
    "vegetables": "carrot potato onion tomato spinach cabbage pea bean cucumber pepper leek",
    "animals": "dog horse elephant tiger rabbit whale eagle snake bear fox giraffe dolphin",
    "colours": "red blue green yellow orange purple black white brown pink grey",
    "musical instruments": "piano violin guitar drum flute trumpet cello harp clarinet organ",
    "sports": "football tennis swimming running cycling rowing boxing skiing hockey golf",
    "pieces of furniture": "table chair bed sofa desk shelf wardrobe stool cupboard bench",
    "tools": "hammer saw screwdriver drill wrench pliers file chisel axe shovel",
    "programming languages": "Python Java C Rust Go Ruby Swift Kotlin JavaScript Haskell",
    "planets": "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune",
    "European countries": "France Spain Italy Germany Poland Greece Norway Austria Portugal Sweden",
    "vehicles": "car bus train bicycle ship plane truck tram scooter helicopter",
    "school subjects": "mathematics history geography physics biology art music chemistry",
    "kinds of weather": "rain snow sunshine wind fog storm hail frost thunder",
    "clothes": "shirt coat hat scarf trousers sock shoe glove dress skirt jacket",
    "trees": "oak pine birch maple willow beech elm ash cedar spruce",
}


def _ask(rng: random.Random, group: str, asks: list[str], short: str, long: str) -> Sample:
    """A question answered in a word or in a sentence; 'In a sentence' asks for the latter."""
    ask = rng.choice(asks)
    if rng.random() < 0.5:
        return Sample("qa", "fact", f"{group}/{ask}", ask, short)
    polite = rng.choice(["Answer in a full sentence.", "Please answer with a sentence."])
    return Sample("qa", "fact", f"{group}/{ask}", f"{ask} {polite}", long)


def country_fact(rng: random.Random) -> Sample:
    name, city, continent, language, money = rng.choice(_COUNTRIES)
    facts = [
        (
            [f"What is the capital of {name}?", f"Which city is the capital of {name}?",
             f"Name the capital of {name}."],
            city, f"The capital of {name} is {city}.",
        ),
        ([f"Of which country is {city} the capital?", f"{city} is the capital of which country?"],
         name, f"{city} is the capital of {name}."),
        ([f"On which continent is {name}?", f"Which continent does {name} belong to?"],
         continent, f"{name} is in {continent}."),
        ([f"Which language is spoken in {name}?", f"What language do people speak in {name}?"],
         language, f"People in {name} speak {language}."),
        ([f"What is the currency of {name}?", f"Which money is used in {name}?"],
         f"the {money}", f"The currency of {name} is the {money}."),
    ]  # fmt: skip
    return _ask(rng, f"country/{name}", *rng.choice(facts))


def element_fact(rng: random.Random) -> Sample:
    name, symbol, number = rng.choice(_ELEMENTS)
    facts = [
        ([f"What is the chemical symbol of {name}?", f"Which symbol stands for {name}?"],
         symbol, f"The chemical symbol of {name} is {symbol}."),
        ([f"Which element has the symbol {symbol}?", f"What does {symbol} stand for in chemistry?"],
         name, f"The symbol {symbol} stands for {name}."),
        ([f"What is the atomic number of {name}?", f"How many protons has an atom of {name}?"],
         number, f"The atomic number of {name} is {number}."),
    ]  # fmt: skip
    return _ask(rng, f"element/{name}", *rng.choice(facts))


def word_fact(rng: random.Random) -> Sample:
    form = rng.randrange(4)
    if form == 0:
        parent, young = rng.choice(_YOUNG).split("/")
        asks = [f"What is a young {parent} called?", f"What do you call the young of a {parent}?"]
        return _ask(rng, f"young/{parent}", asks, young, f"A young {parent} is called a {young}.")
    if form == 1:
        pair = rng.choice(_OPPOSITES).split("/")
        rng.shuffle(pair)
        asks = [f"What is the opposite of {pair[0]}?", f"Which word means the opposite of {pair[0]}?"]
        long = f"The opposite of {pair[0]} is {pair[1]}."
        return _ask(rng, f"opposite/{'/'.join(sorted(pair))}", asks, pair[1], long)
    table, what = ((_PAST, "past tense"), (_PLURALS, "plural"))[form - 2]
    word, answer = rng.choice(table).split("/")
    asks = [f"What is the {what} of '{word}'?", f"Give the {what} of '{word}'."]
    return _ask(rng, f"{what}/{word}", asks, answer, f"The {what} of '{word}' is '{answer}'.")


def number_fact(rng: random.Random) -> Sample:
    a, b = rng.randint(2, 99), rng.randint(2, 99)
    form = rng.randrange(5)
    if form == 0:
        return _ask(rng, f"sum/{a}/{b}", [f"What is {a} plus {b}?", f"How much is {a} + {b}?"],
                    str(a + b), f"{a} plus {b} is {a + b}.")  # fmt: skip
    if form == 1:
        a, b = a % 12 + 1, b % 12 + 1
        return _ask(rng, f"product/{a}/{b}", [f"What is {a} times {b}?", f"How much is {a} x {b}?"],
                    str(a * b), f"{a} times {b} is {a * b}.")  # fmt: skip
    if form == 2:
        n = a * 10 + b
        answer = "even" if n % 2 == 0 else "odd"
        return _ask(rng, f"parity/{n}", [f"Is {n} even or odd?", f"Is the number {n} odd or even?"],
                    answer, f"The number {n} is {answer}.")  # fmt: skip
    if form == 3:
        if a == b:
            b += 1
        bigger = max(a, b)
        asks = [f"Which is bigger, {a} or {b}?", f"What is the larger number: {a} or {b}?"]
        return _ask(rng, f"bigger/{a}/{b}", asks, str(bigger),
                    f"{bigger} is bigger than {min(a, b)}.")  # fmt: skip
    units = {"minutes/hours": 60, "seconds/minutes": 60, "hours/days": 24, "days/weeks": 7}
    units |= {"centimetres/metres": 100, "grams/kilograms": 1000, "metres/kilometres": 1000}
    key = rng.choice(sorted(units))
    small, large = key.split("/")
    n = a % 20 + 2
    return _ask(rng, f"unit/{key}/{n}", [f"How many {small} are {n} {large}?"],
                str(n * units[key]), f"{n} {large} are {n * units[key]} {small}.")  # fmt: skip


def define(rng: random.Random) -> Sample:
    term, kind, what, use = rng.choice(_DEFINITIONS)
    name = term if term in ("photosynthesis", "gravity", "democracy") else article(term)
    asks = [
        f"What is {name}?",
        f"Define {name}.",
        f"Explain what {name} is.",
        f"Explain {name} to a child.",
        f"What is {name} good for?",
        f"Give a short definition of {name}.",
    ]
    ask = rng.choice(asks)
    if ask.endswith("good for?"):
        answer = f"{capital(name)} is good for {use}, because it {what}."
    elif "child" in ask:
        answer = f"{capital(name)} is {kind} that {what}. People need it for {use}."
    else:
        answer = f"{capital(name)} is {kind} that {what}. It is important for {use}."
    other = rng.choice([row for row in _DEFINITIONS if row[0] != term])
    if rng.random() < 0.4:
        second = other[0] if other[0] in ("photosynthesis", "gravity", "democracy") else article(
            other[0])  # fmt: skip
        ask = rng.choice(
            [f"What is the difference between {name} and {second}?",
             f"Compare {name} with {second}."]
        )  # fmt: skip
        answer = f"{capital(name)} is {kind} that {what}, while {second} is {other[1]} that "
        answer += f"{other[2]}. The first is important for {use}, the second for {other[3]}."
        return Sample("general", "compare_terms", f"terms/{term}/{other[0]}", ask, answer)
    return Sample("general", "define", f"define/{term}/{ask}", ask, answer)


def name_some(rng: random.Random) -> Sample:
    category = rng.choice(sorted(_CATEGORIES))
    members = _CATEGORIES[category].split()
    chosen = rng.sample(members, rng.randint(2, min(7, len(members))))
    count = len(chosen)
    form = rng.randrange(4)
    group = f"name/{category}/{'/'.join(chosen[:2])}"
    if form == 0:
        ask, answer = f"Name {count} {category}.", listing(chosen)
    elif form == 1:
        ask = f"Give me a numbered list of {count} {category}."
        answer = "\n".join(f"{i}. {capital(word)}" for i, word in enumerate(chosen, 1))
    elif form == 2:
        ask = f"What do these have in common: {listing(chosen)}?"
        answer = f"They are all {category}."
    else:
        other = rng.choice([key for key in sorted(_CATEGORIES) if key != category])
        odd = rng.choice([word for word in _CATEGORIES[other].split() if word not in members])
        mixed = [*chosen, odd]
        rng.shuffle(mixed)
        ask = f"Which word does not belong: {', '.join(mixed)}?"
        answer = f"{capital(odd)} does not belong, because the others are {category}."
    return Sample("general", "name_some", group, ask, answer)


# goal, tools, steps
_HOW_TO = [
    (line.split("|")[0], line.split("|")[1], line.split("|")[2].split(";"))
    for line in """make a cup of tea|a kettle and a tea bag|Boil fresh water;Put the tea bag into a cup;Pour the hot water over it;Wait three minutes;Take out the tea bag and enjoy
wash the dishes|warm water and soap|Scrape off the leftovers;Fill the sink with warm water and soap;Wash the glasses first;Rinse everything;Let it dry
plant a tree|a spade and water|Choose a sunny place;Dig a deep hole;Set the tree into the hole;Fill the hole with soil;Water it well
write an essay|paper and a quiet hour|Choose a topic;Collect your ideas;Make a plan;Write a first draft;Read it again and correct it
change a light bulb|a new bulb and a ladder|Switch off the light;Let the old bulb cool;Unscrew the old bulb;Screw in the new bulb;Switch on the light
cook pasta|a pot, water and salt|Bring a large pot of water to the boil;Add salt;Put in the pasta;Stir now and then;Drain it when it is soft
clean a window|a cloth and a bucket|Fill a bucket with warm water;Add a little soap;Wipe the glass with a cloth;Dry it with paper;Clean the frame too
pack a suitcase|a list of what you need|Write a list;Lay everything on the bed;Put heavy things at the bottom;Roll up the clothes;Close it and check the weight
prepare for an exam|notes and time|Make a timetable;Read your notes;Practise with old questions;Explain the topic to a friend;Sleep well the night before
repair a flat tyre|a patch and a pump|Take off the wheel;Pull out the tube;Find the hole;Glue a patch on it;Pump up the tyre
bake bread|flour, yeast, water and salt|Mix flour, yeast, water and salt;Knead the dough;Let it rise for an hour;Form a loaf;Bake it until it is brown
learn a new language|a book and a patient friend|Learn ten words every day;Listen to songs;Speak with other people;Read simple stories;Do not fear mistakes
save money|a notebook|Write down what you spend;Make a budget;Buy only what you need;Put a little aside every month;Compare prices
grow tomatoes|seeds, soil and sun|Put the seeds into small pots;Keep them warm;Move them outside in May;Water them every day;Pick the red ones
sleep better|a dark, quiet room|Go to bed at the same time;Turn off all screens;Open the window for a while;Read a few pages;Keep the room dark""".splitlines()
]


def how_to(rng: random.Random) -> Sample:
    goal, tools, steps = rng.choice(_HOW_TO)
    count = rng.randint(3, len(steps))
    form = rng.randrange(4)
    chosen = steps[:count] if form else steps
    if form == 0:
        ask = rng.choice([f"How do I {goal}?", f"Explain how to {goal}.", f"How can I {goal}?"])
        answer = f"You need {tools}. " + " ".join(
            f"{word}, {step[0].lower()}{step[1:]}."
            for word, step in zip(["First", "Then", "Next", "After that", "Finally"], steps,
                                  strict=True)
        )  # fmt: skip
    elif form == 1:
        ask = f"List the first {count} steps to {goal}."
        answer = "\n".join(f"{i}. {step}." for i, step in enumerate(chosen, 1))
    elif form == 2:
        ask = f"Give me {count} tips on how to {goal}, as bullet points."
        answer = "\n".join(f"- {step}." for step in rng.sample(steps, count))
    else:
        ask, answer = f"What do I need to {goal}?", f"To {goal} you need {tools}."
    other = rng.choice(["", "", " Keep it short.", " I am a beginner.", " Please be clear."])
    return Sample("general", "how_to", f"how/{goal}/{form}/{count}{other}", ask + other, answer)


GENERATORS = (
    (country_fact, 2.0),
    (element_fact, 1.2),
    (word_fact, 2.0),
    (number_fact, 4.0),
    (define, 2.0),
    (name_some, 2.0),
    (how_to, 1.0),
)
